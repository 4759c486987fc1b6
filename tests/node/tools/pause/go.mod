module suture.dev/rig/pause

go 1.26
