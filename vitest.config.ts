import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // TODO: no exception any more once a bus has processors.
    exclude: ['test/journeys/a-worker-runs-what-it-is-told.test.ts'],
    globalSetup: ['test/support/redis.ts'],
    testTimeout: 30_000,
    hookTimeout: 30_000,
    pool: 'forks',
    // Most tests wait for processes and sockets: two files at once halve the time, also on two cores.
    maxWorkers: 2,
  },
})
