mksquashfs \
    root \
    root.squashfs \
    -noappend \
    -quiet \
    -no-progress \
    -no-xattrs \
    -comp \
    zstd \
    -Xcompression-level \
    12 \
    -b \
    262144 \
    -all-time \
    1767225600 \
    -mkfs-time \
    1767225600
