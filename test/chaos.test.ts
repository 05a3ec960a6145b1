/** A short run of the chaos harness: the same code, nemesis and checker as the full one. */
import { spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'

const root = resolve(import.meta.dirname, '..')

test('[S05] random join, leave and kill under load: every event at least once, in order per key', () => {
  const args = [join(root, 'chaos/run.mjs'), 'streams', '--quick', '--seed', '7']
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 90_000 })
  expect(`${stdout}${status === 0 ? '' : stderr}`).toMatch(/\nPASSED\n$/)
  expect(stdout).toMatch(/^hits +\| idle \| read, not begun \| in handler \| ended, not committed \| in commit$/m)
  expect(stdout).toMatch(/^kill -9 +(\| +\d+ ){4}\| +\d+$/m)
  expect(stdout).toMatch(/^[1-9]\d* joins, [1-9]\d* leaves; \d+ of [1-9]\d* kills met work in flight$/m)
  expect(stdout).toMatch(/^0 lost in [\d,]+ acknowledged events \(≤ 3\/[\d,]+ at 95 %\)$/m)
  expect(status).toBe(0)
}, 100_000)
