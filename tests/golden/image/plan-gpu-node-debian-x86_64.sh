mmdebstrap \
    --mode=root \
    --skip=check/qemu \
    --variant=apt \
    --format=directory \
    --architectures=amd64 \
    --keyring=/usr/share/keyrings \
    '--aptopt=Acquire::Languages "none"' \
    '--aptopt=APT::Install-Recommends "false"' \
    '--dpkgopt=path-exclude=/usr/share/doc/*' \
    '--dpkgopt=path-include=/usr/share/doc/*/copyright' \
    '--dpkgopt=path-exclude=/usr/share/man/*' \
    '--dpkgopt=path-exclude=/usr/share/locale/*' \
    --include=ca-certificates,conntrack,containerd,containernetworking-plugins,dbus,ethtool,ibverbs-providers,ibverbs-utils,infiniband-diags,iproute2,iptables,kexec-tools,kmod,libtirpc3t64,mount,nftables,nvme-cli,pciutils,python3,rdma-core,runc,signify-openbsd,systemd,systemd-sysv,systemd-timesyncd,udev,util-linux \
    '--customize-hook=chroot "$1" sh -c '"'"'mkdir /provisioner-debs && cd /provisioner-debs && apt-get -o APT::Sandbox::User=root download busybox-static signify-openbsd libbsd0 libmd0 $(apt-cache depends --important --recurse linux-image-amd64 | grep -E '"'"'"'"'"'"'"'"'^(linux-image-[0-9][^ ]*-(amd64|arm64))$'"'"'"'"'"'"'"'"' | sort -u)'"'"'' \
    trixie \
    root \
    'deb http://mirror.example/debian trixie main' \
    'deb http://mirror.example/debian trixie-updates main'

mmdebstrap \
    --mode=root \
    --skip=check/qemu \
    --variant=apt \
    --format=directory \
    --architectures=amd64 \
    --keyring=/usr/share/keyrings \
    '--aptopt=Acquire::Languages "none"' \
    '--aptopt=APT::Install-Recommends "false"' \
    '--dpkgopt=path-exclude=/usr/share/doc/*' \
    '--dpkgopt=path-exclude=/usr/share/man/*' \
    '--dpkgopt=path-exclude=/usr/share/locale/*' \
    --include=gcc-14,kmod,libelf1t64,libssl3t64,make,xz-utils \
    '--customize-hook=chroot "$1" sh -c '"'"'mkdir /provisioner-debs && cd /provisioner-debs && apt-get -o APT::Sandbox::User=root download libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 nvidia-smi nvidia-persistenced libnvidia-cfg1 nvidia-modprobe firmware-nvidia-gsp nvidia-open-kernel-source $(apt-cache depends --important --recurse linux-headers-RELEASE | grep -E '"'"'"'"'"'"'"'"'^(linux-(headers|kbuild)-[0-9].*)$'"'"'"'"'"'"'"'"' | sort -u)'"'"'' \
    trixie \
    driver \
    'deb http://mirror.example/debian trixie main contrib non-free non-free-firmware' \
    'deb http://mirror.example/debian trixie-updates main contrib non-free non-free-firmware'

chroot \
    driver \
    make \
    -C \
    /driver/modules/nvidia-open-kernel \
    -j1 \
    modules \
    SYSSRC=/usr/src/SOURCES \
    SYSOUT=/usr/src/HEADERS \
    'NV_KERNEL_MODULES=nvidia nvidia-uvm' \
    ARCH=x86_64 \
    KCFLAGS=-g0 \
    CONFIG_DEBUG_INFO_BTF_MODULES=
