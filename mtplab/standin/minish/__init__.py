"""A small POSIX shell on the device's files, for hosts without mksh, toybox, root or user namespaces.

No program of the host is started but those the stand-in was told to run, and every path is a device path, resolved
inside the root: nothing a device command names can touch the host, and no host path can show in its output.

What it has: the POSIX command language (lists, pipelines, redirections, here-documents, functions, `if`, `case`,
`for`, `while`, expansions, `trap`, `read -t` with fractions), 32-bit arithmetic as in mksh, and the commands of the
modules `builtins`, `file_commands`, `text_commands` and `system_commands`. What it has not: job control, aliases,
history, `getopts`, `[[ ]]`, arrays, `awk`, and the rest of toybox.
"""
