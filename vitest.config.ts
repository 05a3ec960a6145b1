import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/redis.ts'],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    pool: 'forks',
    // Each test has a namespace of its own, and to load everything anew for each file takes a quarter of the time.
    isolate: false,
    // Most tests wait for processes and sockets: two files at once halve the time, also on two cores.
    maxWorkers: 2,
  },
})
