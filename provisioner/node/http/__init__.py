"""HTTP as whatever runs in an image speaks it: a request, and the end of an answer."""
