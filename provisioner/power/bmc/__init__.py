"""A server's BMC: how it is reached, by Redfish or IPMI, and the connections that are kept."""
