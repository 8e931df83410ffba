"""What `make package` makes of a checkout: the wheel and the container images, the same bytes each time.

wheel        hatchling, of what git would commit
packages     of Debian, downloaded and unpacked and never installed: no script of theirs runs, and any architecture does
wheels       those of requirements/runtime.txt, each by its hash
staging      the folder that becomes a layer: chosen files, and the libraries that they are linked with
layer        one tar.gz, whatever the folder's times and owners
archive      OCI image layout in one tar: for skopeo, podman, containerd, or any registry

No container engine, no network but a Debian mirror and a package index, and no root but what mmdebstrap wants.
"""
