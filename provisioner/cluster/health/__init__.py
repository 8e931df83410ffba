"""Whether a service is alive, and able to do its work: told by plain HTTP to who starts and stops it."""
