"""What this machine is: its hardware, its boot, and how it runs."""
