"""Captured packets out of files: pcap, pcapng, or hexadecimal digits. What is in them is anybody's: nothing here raises
but Refused, and the work is bounded by the file's size, which is bounded."""
