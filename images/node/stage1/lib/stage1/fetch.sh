# Fetching from sources that may be slow, cut, endless or false. Each fetch has an end, in bytes and in time, and what
# came of a layer is kept for the next source. Nothing here is believed: layers.sh verifies each whole.

# A source of layers that gives less than $least_rate over so long is left for the next one. So none holds a boot for
# longer than root_bytes / least_rate and one of these, however many layers there are.
window_seconds=15
# A manifest or its signature, whole.
small_seconds=15

# Those that failed less often in this boot come first, else as the kernel's arguments have them.
rank_sources() {
    : >>/run/stage1/failed
    position=0
    for candidate in $image_sources; do
        position=$((position + 1))
        echo "$(grep -cxF "$candidate" /run/stage1/failed) $position $candidate"
    done | sort -n -k 1,1 -k 2,2 | cut -d " " -f 3
}

# get URL FILE LIMIT_BYTES: a small file, never more than the limit, in small_seconds or not at all. $problem says what
# went wrong.
get() {
    {
        timeout "$small_seconds" wget -q -T "$small_seconds" -O - "$1" 2>/run/stage1/wget.err ||
            echo "$?" >/run/stage1/wget.failed
    } | head -c "$3" >"$2"
    fetched && return 0
    if [ "$(stat -c %s "$2")" -eq "$3" ]; then
        problem="more than $3 bytes"
    elif [ "$problem" = Terminated ]; then
        problem="not whole after $small_seconds s"
    fi
    return 1
}

fetched() {
    problem=""
    [ -e /run/stage1/wget.failed ] || return 0
    rm -f /run/stage1/wget.failed
    problem=$(tail -n 1 /run/stage1/wget.err)
    problem=${problem#wget: }
    [ -n "$problem" ] || problem="the connection ended"
    return 1
}

# transfer URL: what $part lacks of layer_bytes. Sets size, observed (the digest of all that is there) and, from
# fetched, problem; with slow_rate (bytes/s) not empty it was ended for being slow. resumed=yes: the digest is of parts
# of several answers.
transfer() {
    resumed="" slow_rate="" problem=""
    rm -f /run/stage1/ended /run/stage1/wget.failed /run/stage1/slow
    [ -e "$part" ] || : >"$part"
    size=$(stat -c %s "$part")
    if [ "$size" -eq 0 ]; then
        start_wget "$1"
        observed=$(follow_layer hash | sha256sum)
    else
        say "going on after $(megabytes "$size")"
        resumed=yes
        start_wget "$1"
        follow_layer
        # A source that knows no ranges sends the whole. wget writes that over what is there, so the bytes that came
        # before may be others by then.
        if grep -q "restart failed" /run/stage1/wget.err; then
            : >"$part"
            transfer "$1"
            return
        fi
        observed=$(sha256sum <"$part")
    fi
    fetched
    size=$(stat -c %s "$part")
    if [ -e /run/stage1/slow ]; then
        slow_rate=$(cat /run/stage1/slow)
    fi
}

start_wget() {
    : >/run/stage1/wget.err
    {
        wget -q -c -T "$((2 * window_seconds))" -O "$part" "$1" 2>/run/stage1/wget.err &
        echo "$!" >/run/stage1/wget.pid
        wait "$!" || echo "$?" >/run/stage1/wget.failed
        : >/run/stage1/ended
    } &
}

# A source's window goes on from layer to layer: the seconds that were waited for it, and what it gave in them.
begin_window() {
    echo 0 0 >/run/stage1/window
}

# Watches a layer arrive until it is there or its source is slow or sends too much. With "hash" it writes out the
# bytes as they come, so that hashing costs no time of its own. (A pipe through tee does the same three times slower:
# busybox moves 1 KiB at a time.) Every 10 s it says on the console how far it is with all layers.
follow_layer() {
    done_blocks=0 now=$(uptime_seconds) size=$(stat -c %s "$part")
    read -r waited given </run/stage1/window
    said=$now window_began=$((now - waited)) window_size=$((size - given))
    until [ -e /run/stage1/ended ]; do
        size=$(stat -c %s "$part")
        blocks=$((size / 1048576))
        if [ "$1" = hash ] && [ "$blocks" -gt "$done_blocks" ]; then
            dd if="$part" bs=1M skip="$done_blocks" count=$((blocks - done_blocks)) 2>/dev/null
            done_blocks=$blocks
        else
            sleep 0.1
        fi
        now=$(uptime_seconds)
        if [ $((now - said)) -ge 10 ]; then
            say "root: $(megabytes "$((whole_bytes + size))") of $(megabytes "$root_bytes"), now layer $layer" >/dev/console
            said=$now
        fi
        # What wget says before its end is that it begins anew.
        if [ "$size" -gt "$layer_bytes" ] || [ -s /run/stage1/wget.err ]; then
            stop_wget
        elif [ $((now - window_began)) -ge "$window_seconds" ]; then
            rate=$(((size - window_size) / (now - window_began)))
            if [ "$rate" -lt "$least_rate" ]; then
                [ "$size" -eq "$layer_bytes" ] || echo "$rate" >/run/stage1/slow
                stop_wget
            fi
            window_began=$now window_size=$size
        fi
    done
    echo "$((now - window_began)) $(($(stat -c %s "$part") - window_size))" >/run/stage1/window
    [ "$1" != hash ] || dd if="$part" bs=1M skip="$done_blocks" 2>/dev/null
}

stop_wget() {
    kill "$(cat /run/stage1/wget.pid)" 2>/dev/null
}

uptime_seconds() {
    cut -d . -f 1 /proc/uptime
}
