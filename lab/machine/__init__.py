"""Virtual servers: QEMU, its firmware settings and its monitor."""
