import { expect, test } from 'vitest'
import type { Event } from '../../src/index.ts'
import { systemClock } from '../../src/runtime/clock.ts'
import { eventually } from '../support/eventually.ts'
import { threeWays } from '../support/streams.ts'

/** Without what changes by itself from one answer to the next. */
const standing = (text: string) =>
  JSON.parse(text, (name, value) => (['rate', 'lastSeen'].includes(name) ? name : value))

test('[S19] lag, owner, epoch and rate per partition can be inspected', async () => {
  const { bus, get, streams, streamsJson } = await threeWays()
  const seen: Event[] = []
  const epochs = new Map<number, number>()
  const gate = new AbortController()
  bus.processor('search', { match: ['order.*', 'acme:mail.>'] }, async (events, { partition, epoch }) => {
    epochs.set(partition, epoch)
    for await (const event of events) {
      seen.push(event as Event)
      if (seen.length === 4) await new Promise((resolve) => gate.signal.addEventListener('abort', resolve))
    }
  })
  expect([await bus.streams.list(), (await get('/v1/streams')).json]).toEqual([[], { streams: [] }])
  expect(await streams([])).toMatchObject({
    code: 0,
    stdout: '',
    stderr: `No processor has run in namespace ${bus.namespace} yet. --namespace names another one.\n`,
  })

  const published = await bus.commit(
    'order:1',
    Array.from({ length: 10 }, (_, i) => ['order.paid', i] as const),
  )
  const busy = Number(published[0]!.id.split('-')[0])
  await bus.run({ signals: false })
  await eventually(() => seen.length === 4)
  // Three are done; the fourth is in hand.
  const facts = await eventually(async () => {
    const found = await bus.streams.get('search')
    return found.lag === 7 && found
  })
  const mine = facts.partitions[busy]!
  expect(mine).toEqual({
    ...{ partition: busy, owner: 'w1', epoch: epochs.get(busy), cursor: published[2]!.seq, lag: 7 },
    ...{ rate: expect.any(Number), blocked: null },
  })
  const idle = facts.partitions[1 - busy]!
  expect(idle).toMatchObject({ partition: 1 - busy, owner: 'w1', lag: 0, rate: 0 })
  expect(facts).toMatchObject({ name: 'search', match: ['order.*', 'acme:mail.>'], onPoison: 'block', lag: 7 })
  expect(facts.members.map(({ name }) => name)).toEqual(['w1'])

  const [listed, shown] = [await get('/v1/streams'), await get('/v1/streams/search')]
  expect(standing(listed.text).streams).toEqual([standing(shown.text)])
  const [json] = await streamsJson('show', 'search')
  for (const other of [shown.json, json])
    expect(other).toMatchObject({ lag: 7, partitions: facts.partitions.map(({ rate: _, ...rest }) => rest) })

  const table = (await streams([])).stdout.split('\n')
  expect(table[0]).toMatch(/^name +match +workers +lag +rate +parked +dead +blocked$/)
  expect(table[1]).toMatch(/^search +order\.\*, acme:mail\.> +1 +7 +[\d.]+\/s +0 +0 +0$/)
  const lines = (await streams(['show', 'search'])).stdout.split('\n')
  expect(lines[3]).toMatch(/^partition +owner +epoch +cursor +lag +rate +blocked$/)
  expect(lines[4 + busy]).toMatch(new RegExp(`^ +${busy} +w1 +${mine.epoch} +${mine.cursor} +7 +[\\d.]+/s +-$`))
  expect(lines[5 - busy]).toMatch(new RegExp(`^ +${1 - busy} +w1 +${idle.epoch} +${idle.cursor} +0 +0\\.0/s +-$`))
  gate.abort()
  await eventually(async () => (await bus.streams.get('search')).lag === 0)
})

test('[S19] the rate is what was handled a second, and of the past when nothing is', async () => {
  let ahead = 0
  const clock = { ...systemClock, now: () => Date.now() + ahead }
  const { bus } = await threeWays({ clock })
  let handled = 0
  bus.processor('slow', { match: '>' }, async (events) => {
    for await (const _ of events) {
      await new Promise((resolve) => setTimeout(resolve, 10))
      handled += 1
    }
  })
  await bus.commit(
    'order:1',
    Array.from({ length: 400 }, (_, i) => ['order.paid', i] as const),
  )
  await bus.run({ signals: false })
  const began = performance.now()
  const { rate } = await eventually(async () => {
    const facts = await bus.streams.get('slow')
    return facts.rate > 0 && facts
  })
  const mean = (handled * 1000) / (performance.now() - began)
  expect([rate > mean / 2, rate < mean * 2]).toEqual([true, true])
  await bus.close()
  ahead = 6_000
  const { bus: viewer } = await threeWays({ namespace: bus.namespace, clock })
  expect((await viewer.streams.get('slow')).rate).toBe(0)
})

test('[S19] a blocked partition says which event blocks it and why, and goes on when it is resumed', async () => {
  const { bus, get, send, streams, streamsJson } = await threeWays()
  const seen: unknown[] = []
  let broken = true
  const options = { match: '>', retry: { attempts: 1 }, onPoison: 'block' } as const
  bus.processor('search', options, async (events) => {
    for await (const { data } of events) {
      if (broken) throw new Error('no\u001b[31m room')
      seen.push(data)
    }
  })
  const { id } = await bus.publish('order.paid', 1, { key: 'order:1' })
  const partition = Number(id.split('-')[0])
  await bus.run({ signals: false })
  const { blocked } = await eventually(async () => {
    const facts = (await bus.streams.get('search')).partitions[partition]!
    return facts.blocked && facts
  })
  expect(blocked).toMatchObject({ id, error: 'Error: no\u001b[31m room', attempts: 1 })
  expect((await streams([])).stdout).toMatch(/ 1\n$/)
  expect((await streams(['show', 'search'])).stdout).toContain(`${id}  Error: no\\u001b[31m room\n`)
  expect((await get('/v1/streams/search')).json.partitions[partition].blocked).toEqual(blocked)

  expect((await send('POST', '/v1/streams/search/resume', { partition: 1 - partition })).json).toEqual({
    partitions: 0,
    objects: 0,
  })
  expect(await streamsJson('resume', 'search', '--partition', String(partition))).toEqual([
    { partitions: 1, objects: 0 },
  ])
  await eventually(async () => (await bus.streams.get('search')).partitions[partition]!.blocked !== null)
  broken = false
  expect((await send('POST', '/v1/streams/search/resume')).json).toEqual({ partitions: 1, objects: 0 })
  await eventually(() => seen.length === 1)
})

test('[S19] parked objects can be listed, resumed and given up, each by its name, whatever text that is', async () => {
  const { bus, get, send, streams, streamsJson } = await threeWays()
  const seen: unknown[] = []
  let broken = true
  const options = { match: '>', retry: { attempts: 1 }, onPoison: 'park' } as const
  bus.processor('search', options, async (events) => {
    for await (const { data } of events) {
      if (broken) throw new Error('no')
      seen.push(data)
    }
  })
  const [mean, tame] = ['order/1?#&%00 \u001b[31m', 'order:2']
  for (const key of [mean, tame]) for (const n of [1, 2]) await bus.publish('order.paid', `${key} ${n}`, { key })
  await bus.run({ signals: false })
  await eventually(
    async () => (await bus.streams.parked.list('search')).reduce((sum, { events }) => sum + events, 0) === 4,
  )
  const parked = await bus.streams.parked.list('search')
  expect((await get('/v1/streams/search/parked')).json).toEqual({ parked })
  expect(await streamsJson('parked', 'search')).toEqual(parked)
  expect(parked.find(({ object }) => object === `default/${mean}`)).toMatchObject({ state: 'parked', events: 2 })
  const { stdout } = await streams(['parked', 'search'])
  expect(stdout).toMatch(/^object +state +events +since +error\n/)
  expect(stdout).toMatch(/\ndefault\/order\/1\?#&%00 \\u001b\[31m +parked +2 +\S+Z +\d-\d+ {2}Error: no\n/)

  broken = false
  const gone = await send('DELETE', `/v1/streams/search/parked?${new URLSearchParams({ object: `default/${mean}` })}`)
  expect([gone.status, gone.json]).toEqual([200, { discarded: 2 }])
  expect(await streamsJson('discard', 'search', '--object', 'default/unknown')).toEqual([{ discarded: 0 }])
  expect(await streamsJson('resume', 'search', '--object', `default/${tame}`)).toEqual([{ partitions: 0, objects: 1 }])
  await eventually(async () => seen.length === 2 && (await bus.streams.parked.list('search')).length === 0)
  expect(seen).toEqual([`${tame} 1`, `${tame} 2`])
})
