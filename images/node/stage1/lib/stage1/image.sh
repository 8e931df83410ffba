# The image: a signed manifest, and the root that it names by digest and size. Nothing that was fetched is used before
# it is verified.

key=/etc/provisioner/image.pub
manifest=/run/stage1/manifest
squashfs=/ram/image/root.squashfs
# What a system of this kind needs beside its root before the kubelet can evict anything.
reserve_bytes=$((192 * 1024 * 1024))

fetch_manifest() {
    remedy="check the boot host and its image store; publish the image again (provisioner image publish)"
    for file in manifest manifest.sig; do
        if [ "$1" = staged ]; then
            cp "/staged/$file" "/run/stage1/$file" 2>/dev/null || : >"/run/stage1/$file"
            continue
        fi
        get "$1/$image/$file" "/run/stage1/$file" 65536 || {
            complain "$1/$image/$file" "$problem" "a file" "$remedy"
            return 1
        }
    done
    signature=$(signify-openbsd -V -q -p "$key" -x "$manifest.sig" -m "$manifest" 2>&1) || {
        complain "$1/$image/manifest.sig" "$(echo "$signature" | tail -n 1)" "a signature by the key of this stage-1 ($(tail -n 1 "$key"))" \
            "publish an image signed with that key, or kernel and stage-1 of the image's own build"
        return 1
    }
    observed=$(sha256sum <"$manifest")
    if [ "${observed%% *}" != "$digest" ]; then
        complain "$1/$image/manifest" "sha256 ${observed%% *}" "sha256 $digest, which the server's script asks for" "$remedy"
        return 1
    fi
    read_manifest || return 1
    say "manifest of $image verified ($1)"
}

read_manifest() {
    root_digest="" root_bytes="" kernel_release="" format=""
    while read -r name value rest; do
        case $name in
            provisioner-image) format=$value ;;
            root) root_digest=$value root_bytes=$rest ;;
            version.kernel) kernel_release=$value ;;
        esac
    done <"$manifest"
    if [ "$format" != 1 ] || [ ${#root_digest} -ne 64 ] || ! matches "$root_bytes" '0-9'; then
        complain "manifest of $image" "format '$format', root '$root_digest $root_bytes'" "format 1, and digest and size of the root" \
            "build the image with the release of provisioner that built this stage-1"
        return 1
    fi
    if [ "$kernel_release" != "$(uname -r)" ]; then
        complain "kernel of this boot" "$(uname -r)" "$kernel_release, which the image has modules for" \
            "serve vmlinuz and stage1.img of the same image (a cache in between may be stale)"
        return 1
    fi
}

fetch_root() {
    if [ "$1" = staged ]; then
        take_staged_root
        return
    fi
    report Root
    make_room || return 1
    say "fetching root, $(megabytes "$root_bytes")"
    transfer "$1/$image/root.squashfs"
    if [ "$size" -eq "$root_bytes" ] && [ "${observed%% *}" != "$root_digest" ] && [ -n "$resumed" ]; then
        # One of the parts is false, and nobody can say which: the whole, from this source alone.
        say "the parts of the root do not fit together, beginning anew"
        : >"$squashfs"
        transfer "$1/$image/root.squashfs"
    fi
    if [ "$size" -gt "$root_bytes" ]; then
        problem="more than $root_bytes bytes"
    elif [ -n "$slow_rate" ]; then
        # What came is kept.
        complain "source $1" "$((slow_rate / 1024)) KiB/s, $size of $root_bytes bytes of the root are there" "at least $((least_rate / 1024)) KiB/s" \
            "look at its load and at the network in between; what is slow, leastRateBytesPerSecond of the Rack says"
        return 1
    elif [ "$size" -eq 0 ]; then
        problem="nothing${problem:+: $problem}"
    elif [ "$size" -lt "$root_bytes" ]; then
        problem="truncated: $size of $root_bytes bytes${problem:+ ($problem)}"
    elif [ "${observed%% *}" != "$root_digest" ]; then
        problem="altered: sha256 ${observed%% *}"
    else
        say "root verified"
        return 0
    fi
    complain "$1/$image/root.squashfs" "$problem" "$root_bytes bytes with sha256 $root_digest" "$remedy"
    [ "$size" -lt "$root_bytes" ] || free_up
    return 1
}

# A file system for the root, with what an earlier attempt or another source gave of it. Its size is also the bound for
# a server that never stops sending.
make_room() {
    have=0
    if [ "$squashfs" = /ram/image/root.squashfs ] && [ -e "$squashfs" ]; then
        have=$(stat -c %s "$squashfs")
    fi
    if [ "$have" -eq 0 ] || [ "$have" -ge "$root_bytes" ]; then
        free_up
        have=0
    fi
    needed=$((root_bytes - have + reserve_bytes))
    available=$(awk '$1 == "MemAvailable:" { print $2 * 1024 }' /proc/meminfo)
    if [ "$available" -lt "$needed" ]; then
        complain "memory" "$(megabytes "$available") available" "$(megabytes "$needed") (root $(megabytes "$((root_bytes - have))") and $(megabytes "$reserve_bytes") to run in)" \
            "boot this server with a smaller image, or give it more memory"
        return 1
    fi
    [ "$have" -eq 0 ] || return 0
    mkdir -p /ram/image
    mount -t tmpfs -o "nosuid,nodev,mode=0700,size=$((root_bytes + 1048576))" tmpfs /ram/image
    : >"$squashfs"
}

# Only its size is looked at: an initramfs that did not fit into memory is cut.
take_staged_root() {
    squashfs=/staged/root.squashfs
    size=$(stat -c %s "$squashfs")
    if [ "$size" -eq "$root_bytes" ]; then
        say "root was staged before this boot, $(megabytes "$root_bytes")"
        return 0
    fi
    complain "$squashfs" "$size bytes" "$root_bytes bytes" "nothing: it is fetched now; give the server more memory"
    free_up
    return 1
}

mount_root() {
    load_file_systems
    mkdir -p /ram/lower /ram/writable
    if mount -t squashfs -o loop,ro "$squashfs" /ram/lower &&
        mount -t tmpfs -o mode=0755 tmpfs /ram/writable &&
        mkdir -p /ram/writable/upper /ram/writable/work &&
        mount -t overlay -o lowerdir=/ram/lower,upperdir=/ram/writable/upper,workdir=/ram/writable/work overlay /sysroot &&
        [ -x /sysroot/sbin/init ]; then
        return 0
    fi
    complain "root of $image" "it cannot be mounted, or has no /sbin/init" "a squashfs with a system" "build the image again (provisioner image build --force)"
    free_up
    return 1
}

load_file_systems() {
    modprobe -q -a loop squashfs overlay
}

free_up() {
    umount /sysroot /ram/writable /ram/lower /ram/image 2>/dev/null
    rm -rf /staged
    squashfs=/ram/image/root.squashfs
    return 0
}

megabytes() {
    echo "$((($1 + 999999) / 1000000)) MB"
}
