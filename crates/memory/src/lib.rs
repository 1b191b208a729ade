//! The memory substrate: mappings, arenas, buffers, views, KV planes, plans.
