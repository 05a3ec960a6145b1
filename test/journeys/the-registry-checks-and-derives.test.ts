import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import * as v from 'valibot'
import { describe, expect, expectTypeOf, onTestFinished, test } from 'vitest'
import { z } from 'zod'
import { rawJson } from '../../src/bus.ts'
import type { Event } from '../../src/event.ts'
import { event } from '../../src/registry.ts'
import { plainRedis, take, testBus } from '../support/bus.ts'
import { contentsOf, storedEvents } from '../support/stored.ts'

const paid = z.object({ id: z.number().int(), cents: z.number(), note: z.string().default('none') })
const shipped = v.object({ id: v.number(), carrier: v.pipe(v.string(), v.minLength(2)) })

const events = {
  'order.paid': event(paid, {
    key: ({ id }) => `order:${id}`,
    tenant: ({ cents }) => (cents > 1_000 ? 'big' : 'small'),
  }),
  'order.line.shipped': event(shipped, { key: ({ id }) => `order:${id}` }),
  'stock.moved': event(z.array(z.string())),
  'busbar.note': event(z.string()),
}

describe('a schema', () => {
  const violations: ['order.paid' | 'order.line.shipped', unknown, RegExp][] = [
    ['order.paid', { id: 1.5, cents: 5 }, /"order\.paid" does not fit its schema: id: /],
    ['order.paid', { id: 'x', cents: 'y' }, /id: .*; cents: /],
    ['order.paid', undefined, /does not fit/],
    ['order.paid', rawJson('{"id":1}'), /cents: /],
    ['order.line.shipped', { id: 1, carrier: 'x' }, /"order\.line\.shipped" does not fit its schema: carrier: /],
    ['order.line.shipped', { id: 1 }, /carrier/],
  ]
  test.each(violations)(
    '[P19] of zod or valibot: a violation of %s is refused at publish',
    async (type, data, says) => {
      const bus = testBus({ events })
      const redis = plainRedis()
      await bus.publish('stock.moved', ['a'], { key: 'k' })
      const before = await contentsOf(redis, bus.namespace)
      const violation = {
        code: 'SCHEMA_VIOLATION',
        status: 422,
        retryable: false,
        message: expect.stringMatching(says),
      }
      await expect(bus.publish(type, data as never)).rejects.toMatchObject(violation)
      await expect(
        bus.commit('k', [
          ['stock.moved', ['fine']],
          [type, data],
        ]),
      ).rejects.toMatchObject(violation)
      expect(await contentsOf(redis, bus.namespace)).toEqual(before)
      const [bad, fine] = await bus.publishAll([
        { type, data },
        { type: 'free.type', data: 1 },
      ])
      expect(bad!.error).toMatchObject(violation)
      expect(fine!.error).toBeUndefined()
      const types = (await storedEvents(redis, bus.namespace)).map((each) => each.type)
      expect(types.sort()).toEqual(['free.type', 'stock.moved'])
    },
  )

  test('[P19] what fits is stored as the schema gives it back; types without a schema are free', async () => {
    const bus = testBus({ events })
    const plain = await bus.publish('order.paid', { id: 1, cents: 5 })
    expect((await bus.log.get(plain.id))!.json).toBe('{"id":1,"cents":5,"note":"none"}')
    const raw = await bus.publish('order.paid', rawJson('{ "cents": 5, "id": 1 }') as never)
    expect((await bus.log.get(raw.id))!.json).toBe('{ "cents": 5, "id": 1 }')
    const free = await bus.publish('order.cancelled', { anything: [1] })
    expect((await bus.log.get(free.id))!.data).toEqual({ anything: [1] })
    expect((await bus.log.get((await bus.publish('order.line.shipped', { id: 7, carrier: 'ups' })).id))!.key).toBe(
      'order:7',
    )
  })

  test('[P19] that answers later is refused with what to do, and disturbs nobody', async () => {
    const slow = z.string().refine(async () => true)
    const later = v.pipeAsync(
      v.string(),
      v.checkAsync(async () => true),
    )
    const broken: StandardSchemaV1<string> = {
      '~standard': { version: 1, vendor: 'own', validate: () => Promise.reject(new Error('nobody waits for this')) },
    }
    const bus = testBus({
      events: { 'zod.slow': event(slow), 'valibot.slow': event(later), 'own.slow': event(broken) },
    })
    for (const type of ['zod.slow', 'valibot.slow', 'own.slow'] as const) {
      const [refused, free] = await Promise.allSettled([bus.publish(type, 'text'), bus.publish('free.type', 1)])
      expect(refused).toMatchObject({
        status: 'rejected',
        reason: {
          code: 'SETTING_INVALID',
          message: expect.stringContaining(`events["${type}"]: its schema is asynchronous; use one`),
        },
      })
      expect(free.status).toBe('fulfilled')
    }
  })

  test('[P19] [P24] that throws, or a key that cannot be derived, is the error of that event alone', async () => {
    const throwing = v.pipe(
      v.string(),
      v.transform((text) => {
        if (text === 'bad') throw new TypeError('cannot transform')
        return text
      }),
    )
    const bus = testBus({
      events: {
        'a.schema': event(throwing),
        'a.key': event(z.any(), { key: (data) => data.deep.id }),
        'a.tenant': event(z.any(), { tenant: (data) => data.deep.id }),
        'a.number': event(z.any(), { key: () => 5 as never }),
      },
    })
    const answers = await bus.publishAll([
      { type: 'a.schema', data: 'bad' },
      { type: 'a.key', data: {} },
      { type: 'a.tenant', data: {} },
      { type: 'a.number', data: {} },
      { type: 'a.schema', data: 'good' },
    ])
    expect(answers.map((answer) => answer.error?.code)).toEqual([
      'SCHEMA_VIOLATION',
      'SCHEMA_VIOLATION',
      'SCHEMA_VIOLATION',
      'EVENT_INVALID',
      undefined,
    ])
    expect(answers[1]!.error!.message).toMatch(/key cannot be derived: TypeError/)
  })
})

describe('derived key and tenant', () => {
  test('[P24] publish, commit and publishAll need neither', async () => {
    const bus = testBus({ events })
    const first = await bus.publish('order.paid', { id: 42, cents: 5 })
    const second = await bus.publish('order.paid', { id: 42, cents: 6 })
    const big = await bus.publish('order.paid', { id: 42, cents: 5_000 })
    const [all] = await bus.publishAll([{ type: 'order.paid', data: { id: 42, cents: 7 } }])
    expect([first.prev, second.prev, big.prev]).toEqual([null, first.seq, null])
    expect(all).toMatchObject({ prev: second.seq })
    const read = await bus.log.history('order:42', { tenant: 'small' })
    expect(read.map(({ tenant, key }) => [tenant, key])).toEqual(Array(3).fill(['small', 'order:42']))
    const line = await bus.publish('order.line.shipped', { id: 42, carrier: 'ups' })
    expect((await bus.log.get(line.id))!.toJSON()).toMatchObject({ tenant: 'default', key: 'order:42' })
    const [committed] = await bus.commit('order:42', [['order.paid', { id: 1, cents: 8 }]])
    expect(await bus.log.get(committed!.id)).toMatchObject({ tenant: 'small', key: 'order:42' })
  })

  test('[P24] given ones win', async () => {
    const bus = testBus({ events })
    const data = { id: 42, cents: 5 }
    const cases = [
      [{ key: 'given' }, { tenant: 'small', key: 'given' }],
      [{ tenant: 'given' }, { tenant: 'given', key: 'order:42' }],
      [
        { tenant: 'given', key: 'given' },
        { tenant: 'given', key: 'given' },
      ],
    ] as const
    for (const [options, expected] of cases) {
      const { id } = await bus.publish('order.paid', data, options)
      expect(await bus.log.get(id)).toMatchObject(expected)
      const [answer] = await bus.publishAll([{ type: 'order.paid', data, ...options }])
      expect(await bus.log.get((answer as { id: string }).id)).toMatchObject(expected)
    }
    const [committed] = await bus.commit('given', [['order.paid', data]], { tenant: 'given' })
    expect(await bus.log.get(committed!.id)).toMatchObject({ tenant: 'given', key: 'given' })
  })

  test('[P24] a derived key keeps the order of the calls and serves idempotency and expectPrev', async () => {
    const bus = testBus({ events })
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => bus.publish('order.paid', { id: 1, cents: i })),
    )
    expect(answers.map(({ prev }) => prev)).toEqual([null, ...answers.slice(0, -1).map(({ seq }) => seq)])
    const once = () =>
      bus.publish('order.paid', { id: 1, cents: 1 }, { idempotencyKey: 'x', expectPrev: answers.at(-1)!.seq })
    expect([(await once()).duplicate, (await once()).duplicate]).toEqual([false, true])
  })

  test('[P24] a commit whose events belong to different tenants is refused', async () => {
    const bus = testBus({ events })
    const mixed = bus.commit('order:1', [
      ['order.paid', { id: 1, cents: 5 }],
      ['order.paid', { id: 1, cents: 5_000 }],
    ])
    await expect(mixed).rejects.toMatchObject({ code: 'EVENT_INVALID', message: expect.stringContaining('tenant') })
    expect(await storedEvents(plainRedis(), bus.namespace)).toEqual([])
  })
})

describe('types', () => {
  type Paid = Event<{ id: number; cents: number; note: string }, 'order.paid'>
  type Shipped = Event<{ id: number; carrier: string }, 'order.line.shipped'>
  type Moved = Event<string[], 'stock.moved'>
  type Note = Event<string, 'busbar.note'>

  test('[P19] data to publish is typed by its type', () => {
    const bus = testBus({ events })
    const never = () => {
      bus.publish('order.paid', { id: 1, cents: 5 })
      bus.publish('order.paid', { id: 1, cents: 5, note: 'x' })
      bus.publish('some.thing', { any: 'thing' })
      // @ts-expect-error cents is missing
      bus.publish('order.paid', { id: 1 })
      // @ts-expect-error carrier is no number
      bus.publish('order.line.shipped', { id: 1, carrier: 5 })
      // @ts-expect-error not a list
      bus.publish('stock.moved', 'text')
      // @ts-expect-error a key derives from the schema's output
      event(paid, { key: ({ nope }) => nope })
      // @ts-expect-error a key is text
      event(paid, { key: ({ id }) => id })
    }
    expectTypeOf(never).toBeFunction()
  })

  test('[P19] what a live reader gets is typed by its pattern literal', async () => {
    const bus = testBus({ events })
    const typeOf = <E>(live: AsyncIterableIterator<E>) => live.next.bind(live) as unknown as () => E
    expectTypeOf(typeOf(bus.live('order.paid'))).returns.toEqualTypeOf<Paid>()
    expectTypeOf(typeOf(bus.live('order.*'))).returns.toEqualTypeOf<Paid>()
    expectTypeOf(typeOf(bus.live('order.>'))).returns.toEqualTypeOf<Paid | Shipped>()
    expectTypeOf(typeOf(bus.live('*.line.*'))).returns.toEqualTypeOf<Shipped>()
    expectTypeOf(typeOf(bus.live('acme:order.*'))).returns.toEqualTypeOf<Paid>()
    expectTypeOf(typeOf(bus.live(['order.*', 'stock.moved']))).returns.toEqualTypeOf<Paid | Moved>()
    expectTypeOf(typeOf(bus.live(['order.line.*', 'acme:stock.>']))).returns.toEqualTypeOf<Shipped | Moved>()
    expectTypeOf(typeOf(bus.live('>'))).returns.toEqualTypeOf<Paid | Shipped | Moved>()
    expectTypeOf(typeOf(bus.live('busbar.*'))).returns.toEqualTypeOf<Note>()
    expectTypeOf(typeOf(bus.live('nothing.here'))).returns.toEqualTypeOf<never>()
    expectTypeOf(typeOf(bus.live('/order/'))).returns.toEqualTypeOf<Paid | Shipped | Moved>()
    expectTypeOf(typeOf(bus.live('order.*' as string))).returns.toEqualTypeOf<Paid | Shipped | Moved | Note>()
    expectTypeOf(typeOf(testBus().live('order.*'))).returns.toEqualTypeOf<Event>()
  })

  test('[P19] the compiler agrees with every line above', async () => {
    const root = resolve(import.meta.dirname, '../..')
    const folder = await mkdtemp(join(tmpdir(), 'busbar-types-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const project = {
      extends: join(root, 'tsconfig.json'),
      compilerOptions: { typeRoots: [join(root, 'node_modules/@types')] },
      include: [],
      files: [import.meta.filename, join(root, 'test/support/redis.ts')],
    }
    await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(project))
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    const run = promisify(execFile)(process.execPath, [compiler, '-p', folder])
    expect(await run.catch(({ stdout }) => ({ stdout }))).toMatchObject({ stdout: '' })
  })

  test('[P19] and that is what it really gets', async () => {
    const bus = testBus({ events })
    const orders = bus.live('order.>')
    await orders.ready()
    await bus.publish('order.paid', { id: 1, cents: 5 })
    await bus.publish('stock.moved', ['a'])
    await bus.publish('order.line.shipped', { id: 1, carrier: 'ups' })
    for (const each of await take(orders, 2)) {
      if (each.type === 'order.paid') {
        expectTypeOf(each.data).toEqualTypeOf<{ id: number; cents: number; note: string }>()
        expect(each.data).toEqual({ id: 1, cents: 5, note: 'none' })
      } else {
        expectTypeOf(each.data.carrier).toBeString()
        expect(each.data.carrier).toBe('ups')
      }
    }
  })
})
