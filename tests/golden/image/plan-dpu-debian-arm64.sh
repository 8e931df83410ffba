mmdebstrap \
    --mode=root \
    --skip=check/qemu \
    --variant=apt \
    --format=directory \
    --architectures=arm64 \
    --keyring=/usr/share/keyrings \
    '--aptopt=Acquire::Languages "none"' \
    '--aptopt=APT::Install-Recommends "false"' \
    '--dpkgopt=path-exclude=/usr/share/doc/*' \
    '--dpkgopt=path-include=/usr/share/doc/*/copyright' \
    '--dpkgopt=path-exclude=/usr/share/man/*' \
    '--dpkgopt=path-exclude=/usr/share/locale/*' \
    --include=ca-certificates,conntrack,containerd,containernetworking-plugins,dbus,ethtool,iproute2,iptables,kexec-tools,kmod,mount,mstflint,nftables,pciutils,python3,python3-pyroute2,runc,signify-openbsd,systemd,systemd-sysv,systemd-timesyncd,udev,util-linux \
    '--customize-hook=chroot "$1" sh -c '"'"'mkdir /provisioner-debs && cd /provisioner-debs && apt-get -o APT::Sandbox::User=root download busybox-static signify-openbsd libbsd0 libmd0 $(apt-cache depends --important --recurse linux-image-arm64 | grep -E '"'"'"'"'"'"'"'"'^(linux-image-[0-9][^ ]*-arm64)$'"'"'"'"'"'"'"'"' | sort -u)'"'"'' \
    trixie \
    root \
    'deb http://mirror.example/debian trixie main' \
    'deb http://mirror.example/debian trixie-updates main'
