# The interface whose MAC is provisioner.mac, with the address that the server's script gave, or by DHCP.

bring_up_network() {
    if [ -e /run/stage1/network ]; then
        . /run/stage1/network # interface, and what DHCP said
        return 0
    fi
    find_interface || return 1
    ip link set lo up
    if [ -n "$mtu" ] && ! ip link set "$interface" mtu "$mtu"; then
        complain "interface $interface" "MTU $mtu refused" "an MTU that the card accepts" "correct mtu of the rack's subnet"
    fi
    ip link set "$interface" up
    wait_for_carrier || return 1
    if [ -n "$address" ]; then
        ip addr flush dev "$interface"
        ip addr add "$address" dev "$interface" || {
            complain "kernel argument provisioner.address" "'$address'" "address/prefix length" "correct the rack's subnet"
            return 1
        }
        [ -z "$gateway" ] || ip route replace default via "$gateway" dev "$interface" || {
            complain "kernel argument provisioner.gateway" "'$gateway' is not reachable from $address" "a router in the subnet" "correct the rack's subnet"
            return 1
        }
        echo "interface=$interface" >/run/stage1/network
    else
        udhcpc -q -n -f -t 5 -T 2 -i "$interface" -s /lib/stage1/lease >/run/stage1/dhcp.log 2>&1 || {
            complain "DHCP on $interface" "no lease" "an address" "check that the boot service is reachable from this rack, or give the server an address"
            return 1
        }
        . /run/stage1/network
    fi
    say "$interface ($mac) has ${address:-$lease_address}"
}

# Loads drivers until the interface is there: a driver can create a device that needs another one (virtio), and some
# cards appear a moment after their driver. Gives up after 10 s without anything new.
find_interface() {
    tries=0 known=""
    while [ "$tries" -lt 50 ]; do
        interface=$(interface_of_mac)
        [ -z "$interface" ] || return 0
        devices=$(find /sys/devices -name modalias -exec cat {} + | sort -u)
        if [ "$devices" != "$known" ]; then
            known=$devices
            echo "$devices" | xargs -r modprobe -q -a -b 2>/dev/null
        else
            sleep 0.2
            tries=$((tries + 1))
        fi
    done
    complain "interface with MAC $mac" "$(all_interfaces)" "the interface that the server boots from" \
        "correct bootMACAddress of the Server, or add the card's driver to stage1.modules of the recipe"
    return 1
}

interface_of_mac() {
    for file in $(find /sys/class/net -type l); do
        read -r found <"$file/address" || continue
        [ "$found" = "$mac" ] && [ -e "$file/device" ] && echo "${file##*/}" && return 0
    done
}

all_interfaces() {
    list=""
    for file in $(find /sys/class/net -type l); do
        read -r found <"$file/address" || continue
        [ "${file##*/}" = lo ] || list="$list ${file##*/}=$found"
    done
    echo "${list:-no network card that stage-1 has a driver for}"
}

# A switch port with spanning tree can need 30 s.
wait_for_carrier() {
    tries=0
    until [ "$(cat "/sys/class/net/$interface/carrier" 2>/dev/null)" = 1 ]; do
        if [ "$tries" -ge 400 ]; then
            complain "interface $interface ($mac)" "no carrier for 40 s" "a link" "check cable and switch port"
            return 1
        fi
        sleep 0.1
        tries=$((tries + 1))
    done
}
