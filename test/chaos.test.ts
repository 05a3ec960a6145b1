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

test('[Q14] [Q22] ordered queues with limits under kills, pauses and a bad network: effects in order and complete, no limit exceeded', () => {
  const stdout = quickRun('order')
  expect(stdout).toMatch(/^kill -9 worker +(\| +\d+ ){6}\| +\d+$/m)
  expect(stdout).toMatch(/^parked +(\| +\d+ ){3}\| +[1-9]\d*$/m)
  expect(stdout).toMatch(/ of [1-9]\d* kills met work in flight; [1-9]\d* pauses past the lease$/m)
  expect(stdout).toMatch(/^parked objects: [1-9]\d* times let go on, \d+ given up /m)
  expect(stdout).toMatch(/^0 effects out of order in [1-9][\d,]* effects applied .* \d+ duplicates /m)
  expect(stdout).toMatch(/^0 without an effect in [1-9][\d,]* items .* [1-9]\d* of [1-9]\d* handlings failed$/m)
  expect(stdout).toMatch(/^0 given before the one before them was over in [1-9][\d,]* items /m)
  expect(stdout).toMatch(/^0 of one object held at once in [1-9][\d,]* items /m)
  expect(stdout).toMatch(/^0 above a cap, or miscounted in [1-9][\d,]* snapshots .* [1-9]\d* at a cap$/m)
  expect(stdout).toMatch(/^0 above a share in [1-9][\d,]* tenants /m)
  expect(stdout).toMatch(/^0 above a rate in [1-9][\d,]* items given /m)
  expect(stdout).toMatch(/^0 findings of fsck in [1-9]\d* runs /m)
}, 100_000)

test('[O04] [O06] [O07] operations under kills, pauses and a bad network: each has the end that its item has, counted once; none runs without an owner', () => {
  const stdout = quickRun('operations')
  expect(stdout).toMatch(/^kill -9 worker +(\| +\d+ ){6}\| +\d+$/m)
  expect(stdout).toMatch(/^0 without a true end in [1-9][\d,]* operations .* [1-9]\d* failed, with a reason$/m)
  expect(stdout).toMatch(/^0 miscounted in [1-9][\d,]* ended operations /m)
  expect(stdout).toMatch(/^0 running without an owner in [1-9][\d,]* looks /m)
  expect(stdout).toMatch(/^0 wrong answers in [1-9][\d,]* questions /m)
  expect(stdout).toMatch(/^\d+ late results of lost leases were refused$/m)
  expect(stdout).toMatch(/^0 findings of fsck in [1-9]\d* runs /m)
}, 100_000)

test('[W09] webhooks under kills at every step, a bad network and a restart: everything arrives, in order, with the same bytes', () => {
  const stdout = quickRun('webhooks')
  expect(stdout).toMatch(/^kill -9 worker +(\| +\d+ ){5}\| +\d+$/m)
  expect(stdout).toMatch(/^hook claim +(\| +\d+ ){3}\| +[1-9]\d*$/m)
  expect(stdout).toMatch(/^0 lost in [1-9][\d,]* events of webhooks /m)
  expect(stdout).toMatch(/^0 bodies or divisions that changed in [1-9][\d,]* requests /m)
  expect(stdout).toMatch(/^0 out of order in [1-9][\d,]* events that arrived /m)
  expect(stdout).toMatch(/^0 beside another of their sequence in [1-9][\d,]* requests /m)
  expect(stdout).toMatch(/^0 repeats without a cause in [1-9]\d* repeats /m)
  expect(stdout).toMatch(/^0 findings of fsck in [1-9]\d* runs /m)
}, 100_000)
