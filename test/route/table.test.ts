/** The table of subscriptions takes a load whole, or not at all. */
import { expect, test } from 'vitest'
import { routeKeys } from '../../src/redis/keys.ts'
import { runScript } from '../../src/redis/script.ts'
import { writeDefinition } from '../../src/route/definition.ts'
import { type Loaded, putScript } from '../../src/route/scripts.ts'
import type { Subscription } from '../../src/route/sink.ts'
import { RouteTable } from '../../src/route/table.ts'
import { plainRedis } from '../support/bus.ts'
import { eventually } from '../support/eventually.ts'
import { partitions, testRouting } from '../support/routers.ts'

/** RE2 has no look-behind; a later version may have something like it. */
const unreadable = '/(?<=order)paid/'

const subscription = (name: string, revision: number, match: string): Subscription => ({
  ...{ name, kind: 'queue', revision, born: 1, match, options: {} },
})

function loaded(version: number, ...all: readonly Subscription[]): Loaded {
  const definitions = new Map(all.map((each) => [each.name, each]))
  return { whole: false, version, definitions, mains: new Map(), own: new Map(), removing: new Map() }
}

const wanting = (table: RouteTable, type: string) => table.match('acme', type).map(({ name }) => name)

test('a load with a pattern that cannot be read changes nothing', () => {
  const table = new RouteTable()
  table.take(loaded(2, subscription('a', 1, 'order.*'), subscription('b', 2, 'order.*')))
  const broken = loaded(
    5,
    subscription('a', 3, 'mail.*'),
    subscription('b', 4, unreadable),
    subscription('c', 5, 'order.*'),
  )
  expect(() => table.take(broken)).toThrow('look')
  expect(table.version).toBe(2)
  expect(table.wanting).toBe(2)
  expect([...table.all()].map(({ revision }) => revision)).toEqual([1, 2])
  expect(wanting(table, 'order.paid')).toEqual(['a', 'b'])
  expect(wanting(table, 'mail.sent')).toEqual([])
})

test('and the next one is taken with everything since the last that was', () => {
  const table = new RouteTable()
  const [first, last] = [subscription('a', 1, unreadable), subscription('b', 2, 'order.*')]
  expect(() => table.take(loaded(2, first, last))).toThrow()
  expect(table.version).toBe(0)
  expect(table.take(loaded(3, last, subscription('a', 3, 'mail.*')))).toEqual(['b', 'a'])
  expect(table.version).toBe(3)
  expect(table.wanting).toBe(2)
  expect(wanting(table, 'order.paid')).toEqual(['b'])
})

test('a router that cannot read a pattern says so, and misses nobody who was put after it', async () => {
  const routed = testRouting()
  const keys = routeKeys(routed.namespace)
  const first = await routed.start('a')
  await first.router.close(500)
  const definition = writeDefinition({ kind: 'queue', match: unreadable, options: {} })
  const starts = Array.from({ length: partitions }, () => ({ at: 0, last: 0 }))
  await runScript(plainRedis(), putScript, { keys, name: 'strange', definition, force: false, guardMs: 0, starts })
  await routed.put(first, 'q')
  const second = await routed.start('b')
  // Each partition has tried at least twice.
  await eventually(() => second.count('route.failed') > 2 * partitions)
  const { id } = await routed.bus.publish('order.paid', 1)
  await second.subscriptions.remove('strange')
  await eventually(async () => expect(await routed.sink.held('q')).toEqual([id]))
})

test('a router that already runs says it too, once', async () => {
  const routed = testRouting()
  const keys = routeKeys(routed.namespace)
  const router = await routed.start('a')
  await routed.put(router, 'q')
  const before = await routed.bus.publish('order.paid', 1)
  await eventually(async () => expect(await routed.sink.held('q')).toEqual([before.id]))
  const definition = writeDefinition({ kind: 'queue', match: unreadable, options: {} })
  const starts = Array.from({ length: partitions }, () => ({ at: 0, last: 0 }))
  await runScript(plainRedis(), putScript, { keys, name: 'strange', definition, force: false, guardMs: 0, starts })
  await eventually(() => router.count('route.failed') === 1)
  const { id } = await routed.bus.publish('order.paid', 2)
  await eventually(async () => expect(await routed.sink.held('q')).toEqual([before.id, id]))
  await expect(router.router.isIdleUpTo([])).rejects.toMatchObject({ code: 'PATTERN_INVALID' })
  expect(router.count('route.failed')).toBe(1)
})
