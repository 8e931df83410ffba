"""The one way to disturb a node: request -> claim -> drain -> reboot -> verify -> release."""
