"""Redfish and IPMI: power, reset and boot override of servers."""
