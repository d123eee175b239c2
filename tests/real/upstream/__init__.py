"""The upstream programs that Dray is compared with: built from the Go module proxy, run on loopback, and stopped for certain.

``binaries`` builds and caches them (versions: ``go.mod`` here), ``process`` runs one program, ``pki`` makes the keys,
``control_plane`` is etcd and kube-apiserver, ``scheduler`` is kube-scheduler, ``embedded`` is ``dray up`` behind the same
``Server`` value, ``client`` speaks to either, ``manifests`` makes the objects that tests put into them.
"""
