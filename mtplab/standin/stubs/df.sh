# names: df
# The figures come ready-made: the shell's arithmetic has 32 bits.
read -r total used free percent total_g used_g free_g </dev/.sim/df
human=
for word; do case "$word" in -h|-H) human=1 ;; esac; done
if [ -n "$human" ]; then
  echo "Filesystem       Size Used Avail Use% Mounted on"
  echo "/dev/block/dm-61 ${total_g}G ${used_g}G ${free_g}G $percent% /data"
else
  echo "Filesystem       1K-blocks     Used Available Use% Mounted on"
  echo "/dev/block/dm-61 $total $used $free $percent% /data"
fi
