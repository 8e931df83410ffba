# What stage-1 says: to the person at the console, and to the boot service (display only; nothing depends on it).

say() {
    echo "stage-1: $*"
}

# complain OBJECT OBSERVED EXPECTED REMEDY: one fault, on the console and as the message of the current stage.
complain() {
    echo "stage-1: not booted"
    echo "  object    $1"
    echo "  observed  $2"
    echo "  expected  $3"
    echo "  remedy    $4"
    post "$(current_stage)" "$1: observed $2; expected $3; $4"
}

# report STAGE: say once a boot that a stage has begun.
report() {
    [ -e "/run/stage1/reported-$1" ] && return 0
    echo "$1" >/run/stage1/stage
    post "$1" "" && : >"/run/stage1/reported-$1"
    return 0
}

current_stage() {
    cat /run/stage1/stage 2>/dev/null || echo Stage1
}

# post STAGE MESSAGE: fails when the boot service does not answer within 4 s.
post() {
    [ -n "$url" ] && [ -e /run/stage1/network ] || return 1
    body="mac=$(percent "$mac")&stage=$1&bootID=$(cat /proc/sys/kernel/random/boot_id)"
    [ -z "$2" ] || body="$body&message=$(percent "$(printf %.500s "$2")")"
    timeout 4 wget -q -T 3 -O /dev/null --post-data "$body" "$url/v1/progress" 2>/dev/null
}

# Every byte as %XX: right for any text, and needs no table of what is safe.
percent() {
    printf %s "$1" | od -An -v -tx1 | tr -d '\n' | sed 's/ /%/g'
}
