# What the root needs to know of this boot. Files below /run travel with the mount; /etc is in the overlay, in RAM.

hand_over() {
    echo "$server" >/sysroot/etc/hostname || return 1
    name_servers "${dns:-$lease_dns}" >/sysroot/etc/resolv.conf || return 1
    mkdir -p /run/systemd/network /run/provisioner || return 1
    network_unit >/run/systemd/network/10-provisioner.network || return 1
    cp "$manifest" /run/provisioner/manifest || return 1
    cp /run/stage1/mounted /run/provisioner/layers || return 1
    boot_facts >/run/provisioner/boot.json
}

# What the system before this one has left for the next agent: with it this boot proves that it is the one that was
# started there. Taken first, as staged layers that are not right go with all else that was staged.
take_request_key() {
    [ -e /staged/request-key ] || return 0
    mkdir -p /run/provisioner && mv /staged/request-key /run/provisioner/request-key ||
        say "the request key that was staged could not be kept: this boot joins later"
}

# The file is there even without name servers: a missing one blocks every pod.
name_servers() {
    echo "# written by stage-1 from the rack's subnet"
    for server_address in $(echo "$1" | tr , ' '); do
        echo "nameserver $server_address"
    done
}

# The address stays as stage-1 has set it while networkd takes over: nothing that uses it may notice.
network_unit() {
    echo "[Match]"
    echo "MACAddress=$mac"
    echo "Type=ether"
    if [ -n "$mtu" ]; then
        echo "[Link]"
        echo "MTUBytes=$mtu"
    fi
    echo "[Network]"
    echo "LinkLocalAddressing=no"
    echo "IPv6AcceptRA=no"
    if [ -n "$address" ]; then
        echo "Address=$address"
        [ -z "$gateway" ] || echo "Gateway=$gateway"
        echo "KeepConfiguration=yes"
    else
        # KeepConfiguration=yes with DHCP hangs networkd after stage-1's own lease.
        echo "DHCP=ipv4"
        echo "KeepConfiguration=dhcp"
    fi
    for name in $(echo "$ntp" | tr , ' '); do
        echo "NTP=$name"
    done
    if [ -z "$address" ]; then
        echo "[DHCPv4]"
        echo "ClientIdentifier=mac"
    fi
}

# No value needs escaping: the alphabets of the arguments have no quote, backslash or control character.
boot_facts() {
    cat <<EOF
{
  "server": "$server",
  "mac": "$mac",
  "url": "$url",
  "join": "$join",
  "image": "$image",
  "imageDigest": "sha256:$digest",
  "interface": "$interface",
  "address": "${address:-$lease_address}",
  "gateway": "${gateway:-$lease_gateway}",
  "dns": "${dns:-$lease_dns}",
  "ntp": "$ntp",
  "mtu": "$mtu"
}
EOF
}
