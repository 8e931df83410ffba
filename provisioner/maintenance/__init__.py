"""Maintenance: request -> claim -> drain -> reboot -> verify -> release. The one executor that disturbs nodes."""
