"""`provisioner …`: services, manifests, images, racks."""
