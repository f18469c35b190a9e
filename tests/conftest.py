"""Four virtual CPU devices, so that data-parallel code can be tested; must be said before JAX starts."""

import jax

jax.config.update("jax_num_cpu_devices", 4)
