# The signed manifest: which layers the root consists of. Nothing of it is used before signature and digest are verified.

key=/etc/provisioner/image.pub
manifest=/run/stage1/manifest
# What read_manifest makes of it, a line for each layer from the bottom to the top: name, SHA-256, bytes, path below a source.
layers=/run/stage1/layers
most_layers=16
remedy="check the boot host and its image store; publish the image again (provisioner image publish)"

fetch_manifest() {
    for file in manifest manifest.sig; do
        if [ "$1" = staged ]; then
            cp "/staged/$file" "/run/stage1/$file" 2>/dev/null || : >"/run/stage1/$file"
            continue
        fi
        get "$1/$image/$file" "/run/stage1/$file" 65536 || {
            is_full "$1" && return 1
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

# Sets root_bytes, the size of all layers. Format 1 has one layer, which is called root and lies in the image's folder.
read_manifest() {
    kernel_release="" format="" root_bytes=0
    : >"$layers"
    while read -r name value rest || [ -n "$name" ]; do
        case $name in
            provisioner-image) [ -z "$format" ] && format=$value ;;
            version.kernel) kernel_release=$value ;;
            layer.*) [ "$format" = 2 ] && add_layer "${name#layer.}" "$value" "$rest" "parts/sha256-$value" ;;
            root) [ "$format" = 1 ] && add_layer root "$value" "$rest" "$image/root.squashfs" ;;
            *) : ;;
        esac || {
            complain "manifest of $image" "$(printf %.120s "$name $value $rest")" \
                "a layer that is there once, with name, sha256 and size, in a manifest of format 2; at most $most_layers of them" \
                "build the image with the release of provisioner that built this stage-1"
            return 1
        }
    done <"$manifest"
    if [ ! -s "$layers" ]; then
        complain "manifest of $image" "format '$format', no layers" "format 1 with a root, or format 2 with layers" \
            "build the image with the release of provisioner that built this stage-1"
        return 1
    fi
    if [ "$kernel_release" != "$(uname -r)" ]; then
        complain "kernel of this boot" "$(uname -r)" "$kernel_release, which the image has modules for" \
            "serve kernel and stage-1 of the same image (a cache in between may be stale)"
        return 1
    fi
}

# add_layer NAME SHA256 BYTES PATH: fails on what is not one. Of 16 sizes of 15 digits the sum is still a number.
add_layer() {
    matches "$1" a-z0-9- && matches "$2" a-f0-9 && matches "$3" 0-9 || return 1
    case $1 in -* | *-) return 1 ;; esac
    case $3 in 0*) return 1 ;; esac
    [ ${#1} -le 32 ] && [ ${#2} -eq 64 ] && [ ${#3} -le 15 ] || return 1
    [ "$(wc -l <"$layers")" -lt "$most_layers" ] || return 1
    ! grep -q -e "^$1 " -e " $2 " "$layers" || return 1
    echo "$1 $2 $3 $4" >>"$layers"
    root_bytes=$((root_bytes + $3))
}
