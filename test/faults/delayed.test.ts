/** Whatever the network loses or doubles, a delayed publish is one event and one answer, without any idempotency key. */
import { expect, test } from 'vitest'
import { delayScript } from '../../src/publish/scripts.ts'
import { eventually } from '../support/eventually.ts'
import { collect } from '../support/log.ts'
import type { Command, Decision } from '../support/proxy.ts'
import { quickGroup } from '../support/workers.ts'
import { type FaultyPlace, faultyPlace, loseRedis } from './storm.ts'

const isDelay = ({ name, args: [script] }: Command): boolean =>
  (name === 'EVALSHA' && String(script) === delayScript.sha) ||
  (name === 'EVAL' && String(script) === delayScript.source)

function nextDelay({ proxy }: FaultyPlace, decision: Decision): void {
  let decided = false
  proxy.onCommand((command) => {
    if (decided || !isDelay(command)) return 'forward'
    decided = true
    return decision
  })
}

test('[P20] an answer lost, a command lost or doubled: one event, one answer that is no duplicate', async () => {
  const place = await faultyPlace()
  const bus = place.bus({ partitions: 2, group: quickGroup })
  await bus.publish('warm.up', 0, { delay: '1h' })
  const decisions: Decision[] = ['drop-reply', 'cut-before', 'send-twice', { copy: 'before' }]
  for (const [n, decision] of decisions.entries()) {
    nextDelay(place, decision)
    expect(await bus.publish('a.b', n, { key: 'k', delay: 50 })).toMatchObject({ duplicate: false })
  }
  nextDelay(place, 'drop-reply')
  expect(await bus.publish('a.b', 4, { key: 'k', delay: 50, idempotencyKey: 'once' })).toMatchObject({
    duplicate: false,
  })
  expect(await bus.delayed.list()).toHaveLength(6)
  place.proxy.onCommand()
  await bus.run({ signals: false })
  await eventually(async () => (await bus.log.history('k')).length >= 5)
  // Copies that come when everything is in the log already.
  await place.proxy.replayLater(isDelay)
  expect(await bus.delayed.list()).toHaveLength(1)
  expect((await collect(bus.log.read())).map(({ json }) => json)).toEqual(['0', '1', '2', '3', '4'])
})

test('[P20] Redis away: not stored, and not later either; away after it was sent: unknown', async () => {
  const place = await faultyPlace()
  const bus = place.bus()
  await bus.publish('warm.up')
  await loseRedis(place.proxy, bus)
  const call = bus.publish('a.b', 1, { delay: 0, timeout: 200 })
  await expect(call).rejects.toMatchObject({ code: 'NOT_STORED', retryable: true, details: { timeoutMs: 200 } })
  await place.proxy.accept()
  await eventually(() => bus.delayed.list())
  expect(await bus.delayed.list()).toEqual([])
  nextDelay(place, 'swallow')
  const unknown = bus.publish('a.b', 1, { delay: '1h', timeout: 200 })
  await expect(unknown).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN', details: { timeoutMs: 200 } })
})
