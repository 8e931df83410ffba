"""Redfish: power, reset and boot override of servers."""
