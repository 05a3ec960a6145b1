/** Dead letters of queues and processors alike: listed, grouped by reason, redriven and discarded by filter, through every door. */
import { describe, expect, test } from 'vitest'
import { type Bus, rawJson } from '../src/bus.ts'
import type { AnyLetter, DeadView } from '../src/dead-letters.ts'
import { redisUrl } from './support/bus.ts'
import { callCli, jsonLines } from './support/cli.ts'
import { eventually } from './support/eventually.ts'
import { testDoor } from './support/http.ts'
import { quickGroup } from './support/workers.ts'

const big = '{"n": 12345678901234567890.10}'

/** What dies, in this order. */
const letters = [
  { tenant: 'acme', type: 'mail.due', json: big, error: 'no such address' },
  { tenant: 'acme', type: 'mail.due', json: '2', error: 'mailbox full' },
  { tenant: 'zebra', type: 'mail.due', json: '3', error: 'no such address' },
  { tenant: 'zebra', type: 'bill.due', json: '4', error: 'no such address' },
] as const

interface Ways {
  bus: Bus
  dead: DeadView<AnyLetter>
  ids: string[]
  path: string
  handled: string[]
  mend(): void
}

async function publishAll(bus: Bus, count: () => Promise<number>): Promise<string[]> {
  const ids: string[] = []
  for (const { tenant, type, json } of letters) {
    ids.push((await bus.publish(type, rawJson(json), { tenant })).id)
    await eventually(async () => (await count()) === ids.length)
  }
  return ids
}

const kinds = {
  queue: async (bus: Bus): Promise<Omit<Ways, 'bus' | 'path'>> => {
    const state = { broken: true, handled: [] as string[] }
    const queue = bus.queue('mail', { match: '>', retry: { attempts: 1 } })
    queue.work((event) => handle(state, event.json))
    await bus.run({ signals: false })
    const ids = await publishAll(bus, async () => (await bus.queues.get('mail')).dead)
    return { dead: bus.queues.dead, ids, handled: state.handled, mend: () => (state.broken = false) }
  },
  processor: async (bus: Bus): Promise<Omit<Ways, 'bus' | 'path'>> => {
    const state = { broken: true, handled: [] as string[] }
    bus.processor('mail', { match: '>', retry: { attempts: 1 }, onPoison: 'skip' }, async (events) => {
      for await (const event of events) handle(state, event.json)
    })
    await bus.run({ signals: false })
    const ids = await publishAll(bus, async () => (await bus.streams.dead.list('mail')).length)
    return { dead: bus.streams.dead, ids, handled: state.handled, mend: () => (state.broken = false) }
  },
}

function handle(state: { broken: boolean; handled: string[] }, json: string): void {
  if (state.broken) throw new Error(letters.find((letter) => letter.json === json)!.error)
  state.handled.push(json)
}

async function dying(kind: keyof typeof kinds) {
  const door = await testDoor({ bus: { group: quickGroup, partitions: 2 } })
  const ways = await kinds[kind](door.bus)
  const place = ['--redis', redisUrl(), '--namespace', door.bus.namespace]
  const cli = (...args: string[]) => callCli(['dead', ...args, ...place])
  const cliJson = async (...args: string[]) => jsonLines((await cli(...args, '--json')).stdout)
  return { ...door, ...ways, path: `/v1/${kind === 'queue' ? 'queues' : 'streams'}/mail/dead`, cli, cliJson }
}

const idsOf = (found: readonly { id?: unknown }[]) => found.map(({ id }) => id)

describe.each(['queue', 'processor'] as const)('dead letters of a %s', (kind) => {
  test('[Q20] are listed by filter, the same through every door, byte for byte', async () => {
    const { dead, ids, get, path, cliJson, cli } = await dying(kind)
    const cases: [filter: object, places: number[]][] = [
      [{}, [0, 1, 2, 3]],
      [{ tenant: 'acme' }, [0, 1]],
      [{ type: 'bill.due' }, [3]],
      [{ reason: 'such address' }, [0, 2, 3]],
      [{ tenant: 'zebra', reason: 'address', type: 'mail.due' }, [2]],
      [{ tenant: 'nobody' }, []],
    ]
    for (const [filter, places] of cases) {
      const wanted = places.map((at) => ids[at])
      expect([filter, idsOf(await dead.list('mail', filter))]).toEqual([filter, wanted])
      const query = new URLSearchParams(filter as Record<string, string>)
      expect([filter, idsOf((await get(`${path}?${query}`)).json.letters)]).toEqual([filter, wanted])
      const flags = Object.entries(filter).flatMap(([name, value]) => [`--${name}`, String(value)])
      expect([filter, idsOf(await cliJson('ls', 'mail', ...flags))]).toEqual([filter, wanted])
    }
    const all = await dead.list('mail')
    const between = all[2]!.at
    const older = all.filter(({ at }) => at < between).map(({ id }) => id)
    expect(idsOf(await dead.list('mail', { before: between }))).toEqual(older)
    expect(idsOf((await get(`${path}?before=${between}`)).json.letters)).toEqual(older)
    const iso = new Date(between).toISOString()
    expect(idsOf(await cliJson('ls', 'mail', '--before', iso))).toEqual(older)
    expect(idsOf(await dead.list('mail', { reason: 'address', limit: 1, offset: 1 }))).toEqual([ids[2]])
    expect((await get(path)).text).toContain(`"data":${big}}`)
    expect((await cli('ls', 'mail', '--json')).stdout).toContain(`"data":${big}}`)
    const table = (await cli('ls', 'mail', '--type', 'bill.due')).stdout
    expect(table).toMatch(/^id +tenant +type +key +attempts +since +error\n/)
    expect(table).toMatch(/zebra +bill\.due +- +1 +\S+ +Error: no such address\n$/)
  })

  test('[Q20] are grouped by reason, the most first', async () => {
    const { dead, get, path, cliJson, cli } = await dying(kind)
    const [address, full] = await dead.reasons('mail')
    expect([address, full]).toMatchObject([
      { reason: 'Error: no such address', letters: 3 },
      { reason: 'Error: mailbox full', letters: 1 },
    ])
    const all = await dead.list('mail')
    expect([address!.oldestAt, address!.newestAt]).toEqual([all[0]!.at, all[3]!.at])
    expect((await get(`${path}?by=reason`)).json).toEqual({ reasons: [address, full] })
    expect(await cliJson('ls', 'mail', '--by-reason')).toEqual([address, full])
    expect((await cli('ls', 'mail', '--by-reason')).stdout).toMatch(/^letters +oldest .*\n +3 .*no such address\n/)
    expect(await dead.reasons('mail', { tenant: 'zebra' })).toMatchObject([{ letters: 2 }])
    expect((await get(`${path}?by=reason&tenant=acme`)).json.reasons).toHaveLength(2)
    expect(await cliJson('ls', 'mail', '--by-reason', '--tenant', 'zebra')).toHaveLength(1)
  })

  test('[Q20] are redriven and discarded by filter or selection, and nothing else is', async () => {
    const { dead, ids, send, path, cliJson, cli, handled, mend } = await dying(kind)
    const left = async () => idsOf(await dead.list('mail'))
    mend()
    expect(await dead.redrive('mail', { tenant: 'acme', reason: 'full' })).toBe(1)
    await eventually(() => handled.length === 1)
    expect([handled, await left()]).toEqual([['2'], [ids[0], ids[2], ids[3]]])
    expect((await send('POST', `${path}/redrive`, { type: 'mail.due', tenant: 'zebra' })).json).toEqual({ redriven: 1 })
    await eventually(() => handled.length === 2)
    expect([handled, await left()]).toEqual([
      ['2', '3'],
      [ids[0], ids[3]],
    ])
    expect(await cliJson('redrive', 'mail', ids[0]!)).toEqual([{ redriven: 1 }])
    await eventually(() => handled.length === 3)
    expect(handled).toEqual(['2', '3', big])
    expect((await cli('discard', 'mail', '--tenant', 'acme')).stdout).toBe('0 dead letters given up.\n')
    expect((await send('POST', `${path}/discard`, { ids: [ids[3], ids[0]], tenant: 'acme' })).json).toEqual({
      discarded: 0,
    })
    expect(await left()).toEqual([ids[3]])
    const missing = await cli('discard', 'mail', ids[3]!, ids[0]!)
    expect([missing.code, missing.stdout]).toEqual([1, '1 dead letter given up.\n'])
    expect(missing.stderr).toBe('1 id named no such dead letter.\n')
    expect(await left()).toEqual([])
    expect(handled).toHaveLength(3)
  })

  test('nobody is chosen by saying nothing, or something that cannot be', async () => {
    const { dead, ids, send, path, cli } = await dying(kind)
    const wrong: [choice: unknown, said: string][] = [
      [{}, "must name ids or a filter, or be 'all'"],
      [{ tenant: undefined }, "must name ids or a filter, or be 'all'"],
      [{ tennant: 'acme' }, '"tennant" is unknown (did you mean "tenant"?)'],
      [{ before: 'now' }, '"before" must be a time in ms'],
      [{ ids: 'all' }, '"ids" must be a list of ids'],
      [undefined, "must be ids, a filter, or 'all'"],
    ]
    for (const [choice, said] of wrong) {
      await expect(dead.discard('mail', choice as never)).rejects.toThrow(said)
      await expect(dead.redrive('mail', choice as never)).rejects.toThrow(said)
    }
    expect((await send('POST', `${path}/discard`, {})).json.code).toBe('BODY_INVALID')
    const nothing = await cli('discard', 'mail')
    expect([nothing.code, nothing.stderr]).toEqual([
      2,
      'error PARAMETER_INVALID: Parameter "ids" is missing: name dead letters as `busbar dead ls` lists them, or say which by ' +
        '--tenant, --type, --reason or --before, or --all.\n',
    ])
    const both = await cli('discard', 'mail', '--all', '--tenant', 'acme')
    expect([both.code, both.stderr]).toEqual([
      2,
      'error PARAMETER_INVALID: Parameter "all" means every dead letter: leave out --tenant, or leave out --all.\n',
    ])
    const unknown = await cli('rm', 'mail')
    expect([unknown.code, unknown.stderr]).toEqual([
      2,
      'error USAGE: dead has no command "rm". (There is ls, redrive, discard.)\n',
    ])
    expect((await cli('mail', 'redrive')).stderr).toContain('(Did you mean busbar dead redrive mail?)')
    expect(await dead.discard('mail', [])).toBe(0)
    expect(idsOf(await dead.list('mail'))).toEqual(ids)
    expect((await cli('discard', 'mail', '--all')).stdout).toBe('4 dead letters given up.\n')
    expect(await dead.list('mail')).toEqual([])
  })

  test('are found by name, and where there are some', async () => {
    const { cli, cliJson, bus } = await dying(kind)
    expect(await cliJson()).toEqual([{ name: 'mail', kind, dead: 4 }])
    expect((await cli()).stdout).toMatch(new RegExp(`^name +kind +dead\nmail +${kind} +4\n$`))
    const typo = await cli('ls', 'mial')
    expect([typo.code, typo.stderr]).toEqual([1, expect.stringContaining('no queue, processor or webhook "mial"')])
    expect(typo.stderr).toContain('Did you mean mail?')
    expect((await cli('mail')).stderr).toContain('Did you mean busbar dead ls mail?')
    expect((await cli('ls', 'mail', '--kind', 'stream')).stderr).toContain('must be queue or processor or webhook')
    if (kind === 'queue') return
    await bus.queues.put('mail')
    expect(await cli('ls', 'mail')).toMatchObject({ code: 2, stderr: expect.stringContaining('say which with --kind') })
    expect(await cliJson('ls', 'mail', '--kind', 'queue')).toEqual([])
    expect(await cliJson('ls', 'mail', '--kind', 'processor')).toHaveLength(4)
  })
})
