#!/bin/sh
# Back up a folder into dated archives and keep the latest ones.
set -eu

source_dir=${1:?usage: backup.sh SOURCE TARGET}
target_dir=${2:?usage: backup.sh SOURCE TARGET}
keep=7
stamp=$(date +%Y-%m-%d_%H%M)
archive="$target_dir/backup_$stamp.tar.gz"

log() {
    printf '%s %s\n' "$(date +%H:%M:%S)" "$1"
}

require_space() {
    needed=$(du -sk "$source_dir" | cut -f1)
    free=$(df -Pk "$target_dir" | awk 'NR == 2 { print $4 }')
    if [ "$free" -lt "$needed" ]; then
        log "not enough space: $needed KB needed, $free KB free"
        exit 1
    fi
}

remove_old() {
    ls -1t "$target_dir"/backup_*.tar.gz | tail -n +"$((keep + 1))" | while read -r old; do
        log "removing $old"
        rm -- "$old"
    done
}

if [ ! -d "$source_dir" ]; then
    log "no such folder: $source_dir"
    exit 1
fi
mkdir -p "$target_dir"
require_space
log "writing $archive"
tar -czf "$archive.part" -C "$source_dir" .
mv "$archive.part" "$archive"
remove_old
log "done"
