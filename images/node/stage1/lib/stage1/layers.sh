# The layers that the manifest names: brought into memory, verified, and mounted as one root. A layer that arrived whole
# and right has its own name in $arrived and stays there, whatever else of this boot fails.

arrived=/ram/image
# What a system of this kind needs beside its root before the kubelet can evict anything.
reserve_bytes=$((192 * 1024 * 1024))

# fetch_root SOURCE: sets layers_folder, where all layers lie.
fetch_root() {
    layers_folder=/staged
    if [ "$1" = staged ]; then
        take_staged_layers
        return
    fi
    report Root
    layers_folder=$arrived
    make_room || return 1
    whole_bytes=0
    begin_window
    while read -r layer layer_digest layer_bytes path <&3; do
        [ -e "$arrived/${path##*/}" ] || fetch_layer "$1/$path" "$arrived/${path##*/}" || return 1
        whole_bytes=$((whole_bytes + layer_bytes))
    done 3<"$layers"
}

# fetch_layer URL FILE: the file is there only when it is right.
fetch_layer() {
    part=$2.part
    say "fetching layer $layer, $(megabytes "$layer_bytes")"
    transfer "$1"
    if [ "$size" -eq "$layer_bytes" ] && [ "${observed%% *}" != "$layer_digest" ] && [ -n "$resumed" ]; then
        # One of the parts is false, and nobody can say which: the whole, from this source alone.
        say "the parts of layer $layer do not fit together, beginning anew"
        : >"$part"
        transfer "$1"
    fi
    if [ "$size" -gt "$layer_bytes" ]; then
        problem="more than $layer_bytes bytes"
    elif [ -n "$slow_rate" ]; then
        # What came is kept.
        complain "source ${1%/"$path"}" "$((slow_rate / 1024)) KiB/s, $size of $layer_bytes bytes of layer $layer are there" "at least $((least_rate / 1024)) KiB/s" \
            "look at its load and at the network in between; what is slow, leastRateBytesPerSecond of the Rack says"
        return 1
    elif [ "$size" -eq 0 ]; then
        problem="nothing${problem:+: $problem}"
    elif [ "$size" -lt "$layer_bytes" ]; then
        problem="truncated: $size of $layer_bytes bytes${problem:+ ($problem)}"
    elif [ "${observed%% *}" != "$layer_digest" ]; then
        problem="altered: sha256 ${observed%% *}"
    else
        mv "$part" "$2"
        say "layer $layer verified"
        return 0
    fi
    complain "$1" "layer $layer: $problem" "$layer_bytes bytes with sha256 $layer_digest" "$remedy"
    [ "$size" -lt "$layer_bytes" ] || rm "$part"
    return 1
}

# One file system for all layers, with what earlier attempts and other sources gave of them. Its size is also the bound
# for a server that never stops sending.
make_room() {
    rm -rf /staged
    have=0 mounted=""
    if grep -q "^tmpfs $arrived " /proc/mounts; then
        mounted=yes have=$(($(du -s -k "$arrived" | cut -f 1) * 1024))
    fi
    needed=$((root_bytes - have + reserve_bytes))
    available=$(awk '$1 == "MemAvailable:" { print $2 * 1024 }' /proc/meminfo)
    if [ "$available" -lt "$needed" ]; then
        complain "memory" "$(megabytes "$available") available" "$(megabytes "$needed") (root $(megabytes "$((root_bytes - have))") and $(megabytes "$reserve_bytes") to run in)" \
            "boot this server with a smaller image, or give it more memory"
        return 1
    fi
    [ -z "$mounted" ] || return 0
    mkdir -p "$arrived"
    mount -t tmpfs -o "nosuid,nodev,mode=0700,size=$((root_bytes + 1048576))" tmpfs "$arrived"
}

# Only sizes are looked at: an initramfs that did not fit into memory is cut.
take_staged_layers() {
    while read -r layer layer_digest layer_bytes path <&3; do
        size=$(stat -c %s "/staged/${path##*/}" 2>/dev/null || echo no)
        [ "$size" = "$layer_bytes" ] || {
            complain "/staged/${path##*/}" "layer $layer: $size bytes" "$layer_bytes bytes" "nothing: all layers are fetched now; give the server more memory"
            return 1
        }
    done 3<"$layers"
    say "root was staged before this boot, $(megabytes "$root_bytes")"
}

# Leaves in /run/stage1/mounted where each layer can be read: SHA-256, bytes and loop device.
mount_root() {
    modprobe -q -a loop squashfs overlay
    lower=""
    : >/run/stage1/mounted
    while read -r layer layer_digest layer_bytes path <&3; do
        at=/ram/layers/$layer
        mkdir -p "$at" && mount -t squashfs -o loop,ro "$layers_folder/${path##*/}" "$at" || {
            cannot_mount "layer $layer of $image" "it cannot be mounted" "a squashfs"
            return 1
        }
        lower=$at${lower:+:$lower}
        device=$(awk -v at="$at" '$2 == at { print $1 }' /proc/mounts)
        echo "$layer_digest $layer_bytes $device" >>/run/stage1/mounted
    done 3<"$layers"
    mkdir -p /ram/writable
    if mount -t tmpfs -o mode=0755 tmpfs /ram/writable &&
        mkdir -p /ram/writable/upper /ram/writable/work &&
        mount -t overlay -o "lowerdir=$lower,upperdir=/ram/writable/upper,workdir=/ram/writable/work" overlay /sysroot &&
        [ -x /sysroot/sbin/init ]; then
        return 0
    fi
    cannot_mount "root of $image" "its layers cannot be mounted as one, or have no /sbin/init" "layers with a system"
    return 1
}

cannot_mount() {
    complain "$1" "$2" "$3" "build the image again (provisioner image build --force)"
    free_up
}

# All that was mounted, the last first, and what was staged.
free_up() {
    for place in $(awk '$2 == "/sysroot" || $2 ~ "^/ram/" { print $2 }' /proc/mounts | tac); do
        umount "$place"
    done
    rm -rf "$arrived" /staged
}

megabytes() {
    echo "$((($1 + 999999) / 1000000)) MB"
}
