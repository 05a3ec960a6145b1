/** docs/wire.md is the contract for other languages: its commands are run as they stand, its tables are the code's. */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { accessSync, constants, readFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Redis } from 'ioredis'
import { describe, expect, onTestFinished, test } from 'vitest'
import { busbar } from '../src/bus.ts'
import { crc32, partitionOf, partitionTags } from '../src/log/partition.ts'
import { partitionKeys } from '../src/redis/keys.ts'
import { freshNamespace, take } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { startRedis } from './support/redis.ts'

const pathOf = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url))
const read = (path: string) => readFileSync(pathOf(path), 'utf8')
const doc = read('docs/wire.md')
const blocks = [...doc.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block]) => block!)
const shipped = pathOf('dist/publish/publish.lua')

function findCli(): string {
  const folders = (process.env.PATH ?? '').split(delimiter)
  const found = ['redis-cli', 'valkey-cli']
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK)
        return true
      } catch {
        return false
      }
    })
  if (!found) throw new Error('The wire test needs redis-cli or valkey-cli on the PATH; it comes with the server.')
  return found
}

/** Runs the document's commands, all in one shell, and answers the lines that each block printed. */
async function runDocument(place: { port: number; namespace: string }, between = ''): Promise<string[][]> {
  const mark = '=== end of a block ==='
  const script = ['set -eu', ...blocks.flatMap((block) => [block, `echo '${mark}'`, between])].join('\n')
  const { stdout } = await promisify(execFile)('sh', ['-c', script], {
    env: {
      ...process.env,
      PORT: String(place.port),
      NS: place.namespace,
      PUBLISH_LUA: shipped,
      REDIS_CLI: findCli(),
    },
  })
  return stdout
    .split(`${mark}\n`)
    .map((printed) => printed.split('\n').slice(0, -1))
    .slice(0, blocks.length)
}

async function place() {
  const server = await startRedis()
  const namespace = freshNamespace()
  const bus = busbar({ redis: server.url, namespace })
  onTestFinished(async () => {
    await bus.close({ timeout: '1s' })
    await server.stop()
  })
  return { server, namespace, bus, port: server.port }
}

interface Vector {
  tenant: string
  key: string
  crc32: number
  hash: number
  of16: number
  of7: number
}

const vectors: { objects: Vector[]; tags: Record<string, string[]> } = JSON.parse(read('test/vectors/partitions.json'))

describe('[P26] the document', () => {
  test('[P26] its partition table is the vectors, and the vectors are the code', () => {
    const ascii = (text: string) =>
      JSON.stringify(text).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    const rows = vectors.objects
      .map((one) => ({ ...one, key: ascii(one.key), tenant: ascii(one.tenant) }))
      .filter(({ key }) => key.length <= 60)
      .map(
        ({ tenant, key, ...one }) =>
          `| \`${tenant}\` | \`${key}\` | ${one.crc32} | ${one.hash} | ${one.of16} | ${one.of7} |`,
      )
    expect(rows.length).toBeGreaterThanOrEqual(20)
    expect(doc.match(/^\| `"[^\n]*" ?` \| [^\n]*$/gm)).toEqual(rows)

    for (const { tenant, key, ...expected } of vectors.objects) {
      const object = `${tenant}/${key}`
      const hash = partitionOf(object, 2 ** 32)
      expect({ crc32: crc32(object), hash, of16: partitionOf(object, 16), of7: partitionOf(object, 7) }).toEqual(
        expected,
      )
    }
    for (const partitions of [16, 7]) {
      expect(vectors.tags[partitions]).toEqual(partitionTags(partitions))
      expect(doc.replace(/\s+/g, ' ')).toContain(`\`${partitionTags(partitions).join(',')}\``)
    }
  })

  test('[P26] its tables of KEYS, ARGV and replies are those of publish.lua', () => {
    const header = read('src/publish/publish.lua').split('\nlocal ')[0]!
    const declared = [...header.matchAll(/^-- ((?:KEYS|ARGV)\[[\d…]+\]) +(\w*)/gm)].map(([, place, name]) => [
      place,
      name,
    ])
    const documented = [...doc.matchAll(/^\| ((?:KEYS|ARGV)\[[\d…]+\]) \| (\w*) \|/gm)].map(([, place, name]) => [
      place,
      name,
    ])
    expect(documented).toEqual(declared)
    expect(declared.at(-1)).toEqual(['ARGV[11…]', 'objects'])
    for (const word of header.match(/'(\w+)'/g) ?? []) expect(doc).toContain(`\`${word.slice(1, -1)}\``)
  })

  test('[P26] it names the keys as they are', () => {
    const keys = partitionKeys('<ns>', '<tag>')
    const prefix = '<ns>:{<tag>}'
    for (const key of Object.values(keys).filter((one) => one !== keys.holds))
      expect(doc).toContain(key.replace(prefix, '<prefix>'))
  })
})

describe('[P26] its commands', () => {
  test('[P26] published with plain EVALSHA from redis-cli: same seq and prev rules, one chain with the library', async () => {
    const { server, namespace, bus, port } = await place()
    const redis = new Redis(server.url)
    onTestFinished(() => redis.disconnect())
    const heard: Record<string, unknown>[] = []
    redis.on('pmessage', (_, __, message) => heard.push(JSON.parse(message)))
    const live = bus.live('order.*')
    await live.ready()
    await redis.psubscribe(`${namespace}:live:*`)

    const first = await bus.publish('order.placed', 1, { key: 'order:42' })
    const printed = await runDocument({ port, namespace })
    const between = await bus.publish('order.checked', 2, { key: 'order:42' })
    // The second time the server has forgotten the script before each block.
    const again = await runDocument({ port, namespace }, 'redis SCRIPT FLUSH > /dev/null')
    const last = await bus.publish('order.checked', 3, { key: 'order:42' })

    const history = await bus.log.history('order:42')
    expect(history.map(({ type, json }) => [type, json])).toEqual([
      ['order.placed', '1'],
      ['order.paid', '{"total": 12.50}'],
      ['order.sent', '{"parcel":"A7"}'],
      ['order.closed', 'null'],
      ['order.closed', 'null'],
      ['order.checked', '2'],
      ['order.paid', '{"total": 12.50}'],
      ['order.closed', 'null'],
      ['order.closed', 'null'],
      ['order.checked', '3'],
    ])
    expect(history.map(({ prev }) => prev)).toEqual([null, ...history.slice(0, -1).map(({ seq }) => seq)])
    expect([history[0]!.id, history[5]!.id, history[9]!.id]).toEqual([first.id, between.id, last.id])
    const [, paid, sent, closed, closedAgain] = history.map(({ seq }) => String(seq))

    expect(printed[0]).toEqual([])
    expect(printed[2]).toEqual(expect.arrayContaining(['partitions', '16', 'tags', partitionTags(16).join(',')]))
    expect(printed[4]).toEqual(['stored', paid, String(first.seq)])
    const duplicate = ['stored', expect.any(String), '', '1', 'duplicate', sent, '1', paid]
    expect(printed[5]).toEqual(['stored', sent, paid, ...duplicate])
    const answers = ['stored', closed, sent, 'stored', closed, sent, 'stored', closedAgain, closed, 'late']
    expect(printed[6]).toEqual(answers)
    expect(again[5]).toEqual([...duplicate, ...duplicate])
    expect(printed[7]).toContain('{"sent":true}')

    // Seen like any other: by id, live, in the topics, on the live channel, with its state.
    expect((await bus.log.get(history[1]!.id))?.toText()).toBe(history[1]!.toText())
    expect((await take(live, 10)).map(({ id }) => id)).toEqual(history.map(({ id }) => id))
    expect(await bus.topics()).toEqual(new Map([['order', 10]]))
    expect(await bus.state('order:42')).toEqual({ sent: true })
    await eventually(() => heard.length === 4)
    expect(heard).toEqual([3, 4, 7, 8].map((n) => history[n]!.toJSON()))
  })

  test('[P26] its fingerprint is the library’s: the same publish from here is a duplicate', async () => {
    const { namespace, bus, port } = await place()
    await bus.publish('warm.up')
    const [, , , , , printed] = await runDocument({ port, namespace })
    const options = { idempotencyKey: 'send-42', state: { sent: true } }
    const [answer] = await bus.commit('order:42', [['order.sent', { parcel: 'A7' }]], options)
    expect(answer).toMatchObject({ duplicate: true, seq: Number(printed![1]) })
    await expect(bus.commit('order:42', [['order.sent', { parcel: 'B8' }]], options)).rejects.toMatchObject({
      code: 'IDEMPOTENCY_KEY_REUSED',
    })
  })

  test('[P26] the script that is shipped is the one the library runs, and its name is the SHA-1 of its bytes', async () => {
    const { namespace, bus, port } = await place()
    await bus.publish('warm.up')
    const sha = createHash('sha1').update(readFileSync(shipped)).digest('hex')
    expect(readFileSync(shipped, 'utf8')).toBe(read('src/publish/publish.lua'))
    blocks.push('echo "$SHA"\n')
    const printed = await runDocument({ port, namespace }).finally(() => blocks.pop())
    expect(printed.at(-1)).toEqual([sha])
  })
})
