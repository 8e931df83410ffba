"""From a request to a finished image: its layers built or taken from the cache, stage-1, and the gates' verdict."""
