"""Boot orders: which server needs a boot, what is said of it, and the controller that writes it."""
