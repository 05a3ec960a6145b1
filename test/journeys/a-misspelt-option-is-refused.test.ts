/** An option that nobody knows would be without effect, and nobody would hear of it: each call refuses it. */

import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { type Bus, busbar } from '../../src/bus.ts'
import { event } from '../../src/registry.ts'
import { plainRedis, testBus } from '../support/bus.ts'
import { contentsOf } from '../support/stored.ts'

// What a caller without a type checker can write.
// biome-ignore lint/suspicious/noExplicitAny: the types refuse all of it.
type Anything = any

const idle = () => undefined

describe('declarations', () => {
  const definition = event(z.object({ id: z.number() }), { ky: () => 'x' } as Anything)
  test.each<[Anything, string]>([
    [{ namespce: 'x' }, 'namespce is unknown (did you mean "namespace"?)'],
    [{ zebra: 1 }, 'zebra is unknown; there is redis, dataDir, namespace, '],
    [{ retention: { ages: '1d' } }, 'retention.ages is unknown (did you mean "age"?)'],
    [{ publish: { timout: '1s' } }, 'publish.timout is unknown (did you mean "timeout"?)'],
    [{ group: { hartbeat: '1s' } }, 'group.hartbeat is unknown (did you mean "heartbeat"?)'],
    [{ publish: 5 }, 'publish must be an object with timeout, maxWaiting, maxWaitingBytes; got 5'],
    [{ events: { 'a.b': definition } }, 'events["a.b"].ky is unknown (did you mean "key"?)'],
    [{ retention: { age: '5x' } }, 'retention.age must be a duration like "250ms", "30s", "5m", "2h" or "7d", or a'],
    [{ retention: { age: '5x' } }, 'got "5x"'],
  ])('busbar(%j)', (options, says) => {
    expect(() => busbar(options)).toThrow(expect.objectContaining({ code: 'SETTING_INVALID' }))
    expect(() => busbar(options)).toThrow(says)
  })

  test.each<[Anything, string]>([
    [{ match: 'a.b', onPoisn: 'park' }, 'onPoisn is unknown (did you mean "onPoison"?)'],
    [{ match: 'a.b', retry: 5 }, 'retry must be an object with attempts, backoff; got 5'],
    [{ match: 'a.b', retry: null }, 'retry must be an object with attempts, backoff; got null'],
    [{ match: 'a.b', retry: { atempts: 5 } }, 'retry.atempts is unknown (did you mean "attempts"?)'],
    [
      { match: 'a.b', retry: { backoff: '1s' } },
      `retry.backoff must be two durations, as in ['100ms', '30s']; got "1s"`,
    ],
    [{ match: 'a.b', retry: { backoff: ['5x', '1s'] } }, 'got "5x"'],
    [
      { match: 'a.b', retry: { backoff: ['5m', '1s'] } },
      `retry.backoff must be the first wait and then the longest, as in ['1s', '5m']; got ["5m","1s"]: swap them`,
    ],
    [{ match: 'a.b', commit: 'batches' }, `commit, unless 'each' or 'batch', must be a duration`],
    [{ match: 'a.b', commit: 'batches' }, 'got "batches"'],
    [{}, `match is missing: which events, as in { match: 'order.*' }`],
    [undefined, 'match is missing'],
  ])('processor(%j)', (options, says) => {
    const bus = testBus()
    expect(() => bus.processor('p', options, idle)).toThrow(expect.objectContaining({ code: 'SETTING_INVALID' }))
    expect(() => bus.processor('p', options, idle)).toThrow(says)
    expect(bus.declared()).toEqual([])
  })

  test.each<[Anything, string]>([
    [{ evry: '1s' }, 'evry is unknown (did you mean "every"?)'],
    [{ leader: true }, 'leader is unknown; say on: "leader", which is the default, or on: "each"'],
    [null, 'its options come second'],
  ])('task(%j)', (options, says) => {
    const bus = testBus()
    expect(() => bus.task('t', options, idle)).toThrow(expect.objectContaining({ code: 'TASK_INVALID' }))
    expect(() => bus.task('t', options, idle)).toThrow(says)
  })

  test.each<[Anything, Anything, string]>([
    [{ type: 'a.b', typo: 1 }, {}, 'typo is unknown (did you mean "type"?)'],
    [{ type: 'a.b' }, { timezon: 'UTC' }, 'timezon is unknown (did you mean "timezone"?)'],
    [undefined, {}, `it needs an event to publish, as in { type: 'report.due' }; got undefined`],
    ['a.b', {}, 'got "a.b"'],
  ])('schedule(%j, %j)', (scheduled, options, says) => {
    const declare = () => testBus().schedule('s', '* * * * *', scheduled, options)
    expect(declare).toThrow(expect.objectContaining({ code: 'SCHEDULE_INVALID' }))
    expect(declare).toThrow(says)
  })

  test('a processor or a schedule after run() is refused, as it would never start', async () => {
    const bus = testBus()
    await bus.run({ signals: false })
    expect(() => bus.processor('late', { match: '>' }, idle)).toThrow(
      expect.objectContaining({
        code: 'SETTING_INVALID',
        message: expect.stringContaining('processor "late" comes too late: processors are declared before run()'),
      }),
    )
    expect(() => bus.schedule('late', '* * * * *', { type: 'a.b' })).toThrow(/before run\(\)/)
  })
})

describe('calls', () => {
  test.each<[string, (bus: Bus) => Promise<unknown>, string]>([
    [
      'publish',
      (bus) => bus.publish('a.b', 1, { dealy: '5m' } as Anything),
      '"dealy" is unknown (did you mean "delay"?)',
    ],
    ['publish', (bus) => bus.publish('a.b', 1, { delay: '5m', kye: 'k' } as Anything), 'did you mean "key"?'],
    ['publish', (bus) => bus.publish('a.b', 1, 'x' as Anything), '"0" is unknown; there is tenant, key, '],
    ['commit', (bus) => bus.commit('k', [['a.b']], { stat: {} } as Anything), 'did you mean "state"?'],
    ['commit', (bus) => bus.commit('k', [['a.b']], { key: 'l' } as Anything), 'must be the key of the commit, "k"'],
    ['commit', (bus) => bus.commit('k', [['a.b', 1, { tme: 1 }]] as Anything), 'did you mean "time"?'],
    ['publishAll', (bus) => bus.publishAll([{ type: 'a.b' }], { timeuot: 1 } as Anything), 'did you mean "timeout"?'],
  ])('%s', async (_, call, says) => {
    const bus = testBus()
    await bus.topics()
    const before = await contentsOf(plainRedis(), bus.namespace)
    await expect(call(bus)).rejects.toMatchObject({ code: 'EVENT_INVALID', message: expect.stringContaining(says) })
    expect(await contentsOf(plainRedis(), bus.namespace)).toEqual(before)
  })

  test('of publishAll one event fails alone', async () => {
    const bus = testBus()
    const [bad, good] = await bus.publishAll([{ type: 'a.b', tenent: 'x' } as Anything, { type: 'a.b' }])
    expect(bad!.error).toMatchObject({ code: 'EVENT_INVALID', message: expect.stringContaining('"tenant"?') })
    expect(good!.error).toBeUndefined()
  })

  test('live and run', async () => {
    const bus = testBus()
    expect(() => bus.live('>', { sinse: 'beginning' } as Anything)).toThrow(/"sinse" is unknown \(did you mean "since"/)
    await expect(bus.run({ onyl: ['a'] } as Anything)).rejects.toMatchObject({ code: 'PARAMETER_INVALID' })
  })

  test.each<[string, (bus: Bus) => Promise<unknown>, string]>([
    ['queues.pause', ({ queues }) => queues.pause('q', { tenat: 'a' } as Anything), '"tenat" is unknown (did you mean'],
    [
      'queues.pause',
      ({ queues }) => queues.pause('q', 'a' as Anything),
      '"options" must be an object with tenant; got',
    ],
    [
      'queues.resume',
      ({ queues }) => queues.resume('q', { object: 'a/k' } as Anything),
      '"object" is unknown; there is',
    ],
    ['queues.tenants', ({ queues }) => queues.tenants('q', { limt: 1 } as Anything), 'did you mean "limit"?'],
    ['queues.peek', ({ queues }) => queues.peek('q', { n: 1 } as Anything), '"n" is unknown; there is max'],
    ['parked.resume', ({ queues }) => queues.parked.resume('q', undefined as Anything), '"object" must be text, '],
    ['parked.discard', ({ queues }) => queues.parked.discard('q', ['a/k'] as Anything), '"object" must be text, '],
    ['streams.reset', ({ streams }) => streams.reset('p', 'now', { preveiw: true } as Anything), 'mean "preview"?'],
    ['streams.resume', ({ streams }) => streams.resume('p', { partion: 1 } as Anything), 'mean "partition"?'],
    ['log.history', ({ log }) => log.history('k', { tenat: 'a' } as Anything), 'did you mean "tenant"?'],
    ['log.read', ({ log }) => log.read({ sinse: 1 } as Anything).next(), 'did you mean "since"?'],
    ['state', (bus) => bus.state('k', { tenat: 'a' } as Anything), 'did you mean "tenant"?'],
  ])('%s', async (_, call, says) => {
    const bus = testBus()
    await bus.queues.put('q')
    await bus.queues.pause('q', { tenant: 'b' })
    const before = await contentsOf(plainRedis(), bus.namespace)
    await expect(call(bus)).rejects.toMatchObject({ code: 'PARAMETER_INVALID', message: expect.stringContaining(says) })
    expect(await contentsOf(plainRedis(), bus.namespace)).toEqual(before)
  })

  test('an option that is undefined is not given; a whole event may be its own place', async () => {
    const bus = testBus()
    await bus.publish('a.b', 1, { dealy: undefined } as Anything)
    const whole = { type: 'a.b', data: 1, key: 'k' }
    await bus.publish(whole.type, whole.data, whole)
    await bus.commit('k', [['a.b']], { key: 'k' } as Anything)
  })
})
