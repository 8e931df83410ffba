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
    --include=ca-certificates,conntrack,containerd,containernetworking-plugins,dbus,ethtool,ibverbs-providers,ibverbs-utils,infiniband-diags,iproute2,iptables,kexec-tools,kmod,libtirpc3t64,mount,nftables,nvme-cli,pciutils,python3,rdma-core,runc,signify-openbsd,systemd,systemd-sysv,systemd-timesyncd,udev,util-linux \
    '--customize-hook=chroot "$1" sh -c '"'"'mkdir /provisioner-debs && cd /provisioner-debs && apt-get -o APT::Sandbox::User=root download busybox-static signify-openbsd libbsd0 libmd0 $(apt-cache depends --important --recurse linux-image-generic | grep -E '"'"'"'"'"'"'"'"'^(linux-(image|modules|modules-extra)-[0-9][^ ]*-generic)$'"'"'"'"'"'"'"'"' | sort -u)'"'"'' \
    noble \
    root \
    'deb http://mirror.example/ubuntu noble main universe' \
    'deb http://mirror.example/ubuntu noble-updates main universe' \
    'deb http://mirror.example/ubuntu noble-security main universe'

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
    '--dpkgopt=path-exclude=/usr/share/man/*' \
    '--dpkgopt=path-exclude=/usr/share/locale/*' \
    '--customize-hook=chroot "$1" sh -c '"'"'mkdir /provisioner-debs && cd /provisioner-debs && apt-get -o APT::Sandbox::User=root download linux-modules-nvidia-580-server-open-RELEASE libnvidia-compute-580-server nvidia-utils-580-server nvidia-compute-utils-580-server libnvidia-cfg1-580-server nvidia-modprobe nvidia-kernel-common-580-server $(apt-cache depends --important --recurse linux-modules-nvidia-580-server-open-RELEASE libnvidia-compute-580-server nvidia-utils-580-server nvidia-compute-utils-580-server libnvidia-cfg1-580-server nvidia-modprobe nvidia-kernel-common-580-server | grep -E '"'"'"'"'"'"'"'"'^(nvidia-firmware-580-server-[0-9.]+)$'"'"'"'"'"'"'"'"' | sort -u)'"'"'' \
    noble \
    driver \
    'deb http://mirror.example/ubuntu noble main universe restricted multiverse' \
    'deb http://mirror.example/ubuntu noble-updates main universe restricted multiverse' \
    'deb http://mirror.example/ubuntu noble-security main universe restricted multiverse'
