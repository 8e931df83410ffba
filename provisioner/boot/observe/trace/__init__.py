"""What boot hosts tell of one machine while somebody wants a trace of it: bounded, and off by itself.

A boot host watches Servers and Racks anyway; an annotation of one (`provisioner.api.servers.trace`) names a moment.
Until then the DHCP workers hand over the packets of that MAC address, the access log and dnsmasq's words are searched
for its address, and what is found becomes a few Events of the object. No other machine's packet costs more than a
comparison of its MAC address, and whoever floods with the traced one is counted, not told.
"""
