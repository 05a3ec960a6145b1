/** A short run of the chaos harness: the same code, nemesis and checker as the full one. */
import { spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'

const root = resolve(import.meta.dirname, '..')

function quickRun(scenario: string) {
  const args = [join(root, 'chaos/run.mjs'), scenario, '--quick', '--seed', '7']
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 90_000 })
  expect(`${stdout}${status === 0 ? '' : stderr}`).toMatch(/\nPASSED\n$/)
  expect(status).toBe(0)
  return stdout
}

test('[S05] random join, leave and kill under load: every event at least once, in order per key', () => {
  const stdout = quickRun('streams')
  expect(stdout).toMatch(/^hits +\| idle \| read, not begun \| in handler \| ended, not committed \| in commit$/m)
  expect(stdout).toMatch(/^kill -9 +(\| +\d+ ){4}\| +\d+$/m)
  expect(stdout).toMatch(/^[1-9]\d* joins, [1-9]\d* leaves; \d+ of [1-9]\d* kills met work in flight$/m)
  expect(stdout).toMatch(/^0 lost in [\d,]+ acknowledged events \(≤ 3\/[\d,]+ at 95 %\)$/m)
}, 100_000)

test('[Q04] [Q31] queues under kills, a bad network, a restart and no memory: nothing lost, nothing given twice without a cause, fair', () => {
  const stdout = quickRun('queues')
  expect(stdout).toMatch(/^kill -9 worker +(\| +\d+ ){6}\| +\d+$/m)
  expect(stdout).toMatch(/^settle +(\| +\d+ ){3}\| +[1-9]\d*$/m)
  expect(stdout).toMatch(/^0 lost in [1-9][\d,]* items /m)
  expect(stdout).toMatch(/^0 live leases beside another, or gifts after an ack in [1-9][\d,]* items given /m)
  expect(stdout).toMatch(/^0 unfair in 3,000 claims /m)
  expect(stdout).toMatch(/^0 findings of fsck in [1-9]\d* runs /m)
  expect(stdout).toMatch(/^0 failures in 1 times without memory .* [1-9]\d* publishes and [1-9]\d* sends refused/m)
}, 100_000)
