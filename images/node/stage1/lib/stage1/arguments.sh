# The kernel command line. It comes over an unauthenticated network: every value is checked for its alphabet before it
# reaches a file or a command; what the machine boots is settled by the signature, not by these.

# matches VALUE ALPHABET: VALUE is not empty and has no other characters than the bracket expression ALPHABET.
matches() {
    case $1 in
        "" | *[!$2]*) return 1 ;;
    esac
}

# take NAME VALUE ALPHABET: set the variable, or complain of the argument.
take() {
    if matches "$2" "$3"; then
        eval "$1=\$2"
    else
        complain "kernel argument provisioner.$1" "'$2'" "characters of [$3]" "correct the object that it comes from (Server, Rack or NodePool)"
        refused=yes
    fi
}

read_arguments() {
    server="" mac="" url="" join="" image="" images="" nextimages="" leastrate="" address="" gateway="" dns="" ntp="" mtu="" refused=""
    read -r line </proc/cmdline
    for word in $line; do
        value=${word#*=}
        case $word in
            provisioner.server=*) take server "$value" 'a-z0-9.-' ;;
            provisioner.mac=*) take mac "$(echo "$value" | tr A-F- a-f:)" '0-9a-f:' ;;
            provisioner.url=*) take url "${value%/}" 'A-Za-z0-9.:/_-' ;;
            provisioner.join=*) take join "${value%/}" 'A-Za-z0-9.:/_-' ;;
            provisioner.image=*) take image "$value" 'a-f0-9sh-' ;;
            provisioner.images=*) take images "${value%/}" 'A-Za-z0-9.:/_-' ;;
            provisioner.nextimages=*) take nextimages "${value%/}" 'A-Za-z0-9.:/_-' ;;
            provisioner.leastrate=*) take leastrate "$value" '0-9' ;;
            provisioner.address=*) take address "$value" '0-9./' ;;
            provisioner.gateway=*) take gateway "$value" '0-9.' ;;
            provisioner.dns=*) take dns "$value" '0-9.,' ;;
            provisioner.ntp=*) take ntp "$value" 'A-Za-z0-9.,-' ;;
            provisioner.mtu=*) take mtu "$value" '0-9' ;;
        esac
    done
    for name in server mac url join image; do
        eval "value=\$$name"
        if [ -z "$value" ] && [ -z "$refused" ]; then
            complain "kernel argument provisioner.$name" "nothing" "a value" "boot with the script that the boot service serves"
            refused=yes
        fi
    done
    [ -z "$refused" ] || return 1
    digest=${image#sha256-}
    if [ ${#digest} -ne 64 ] || ! matches "$digest" 'a-f0-9'; then
        complain "kernel argument provisioner.image" "'$image'" "sha256- and 64 hexadecimal digits" "boot with the script that the boot service serves"
        return 1
    fi
    # As the boot service orders them, the boot host behind all.
    image_sources=""
    for each in $images $nextimages "$url/images"; do
        case " $image_sources " in
            *" $each "*) ;;
            *) image_sources="${image_sources:+$image_sources }$each" ;;
        esac
    done
    # In bytes per second; ten digits are more than any network has.
    least_rate=262144
    [ -z "$leastrate" ] || [ ${#leastrate} -gt 10 ] || least_rate=$leastrate
}
