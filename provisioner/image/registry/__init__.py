"""An OCI registry as a second store of images: push, pull by digest, and boot hosts that fill themselves."""
