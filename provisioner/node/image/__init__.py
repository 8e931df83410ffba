"""The next image on the running machine: fetched, verified, loaded, started."""
