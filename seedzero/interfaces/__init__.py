"""Ways in beside Python and the command line: pages, the policy server, launchers, measurements."""
