"""The servers' versions, each pinned by what it is made of."""

LAKEFS_VERSION = "1.84.0"
LAKEFS_MODULE = "github.com/treeverse/lakefs"
LAKEFS_SUM = "h1:OR5X6hzmnNg6zMj3nBaDUyGV3H4Ula0/I7BF87SdMjw="

CONDUCTOR_VERSION = "3.32.3"
CONDUCTOR_GROUP = "org.conductoross"
CONDUCTOR_ARTIFACT = "conductor-server"
CONDUCTOR_CLASSIFIER = "boot"
CONDUCTOR_SHA256 = "6b1615a5beb82bbbfa05219d0f1b84440aa8c0bef1371662803ef5588d7d507b"
