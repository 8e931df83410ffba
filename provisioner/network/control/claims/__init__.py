"""Values are claimed by creating an object named after them, and released once no DPU can have them in its kernel."""
