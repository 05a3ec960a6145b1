/** Checks the table of subscriptions, and the places from which routers read, while they are in use. */
import { shown } from '../errors.ts'
import { type Finding, type FsckCheck, lookTwice } from '../fsck-checks.ts'
import { wholeNumber } from '../log/fsck-read.ts'
import { readLasts } from '../log/read.ts'
import type { LogSource } from '../log/view.ts'
import { routeKeys } from '../redis/keys.ts'
import { runScript } from '../redis/script.ts'
import { readSubscription } from './definition.ts'
import { fsckScript } from './scripts.ts'

type Judge = (row: readonly string[], around: { highest: number; lasts: readonly number[] }) => Found | undefined
type Found = [where: string, problem: string]

// Looking at 300 definitions takes Redis about 1 ms.
const piecesPerStep = 300

const sections: readonly (readonly [what: string, check: FsckCheck, judge: Judge])[] = [
  ['subscriptions', 'subscriptions', judgeSubscription],
  ['changes', 'subscriptions', judgeChange],
  ['removing', 'subscriptions', ([name]) => [subscription(name), 'it is registered and being removed']],
  [
    'replaced',
    'subscriptions',
    ([name]) => [subscription(name), 'definitions of it are remembered, but it is not registered'],
  ],
  ['own', 'cursors', judgeOwn],
  ['cursors', 'cursors', judgeMain],
]

export async function* checkRoutes(source: LogSource, mistyped: ReadonlySet<string>): AsyncGenerator<Finding> {
  const keys = routeKeys((await source.read(async (_, namespace) => namespace)).name)
  // A key of the wrong type cannot be read; it is reported.
  if (Object.values(keys).some((key) => mistyped.has(key))) return
  for (const [what, check, judge] of sections) yield* lookTwice(() => walk(source, what, check, judge))
}

async function walk(source: LogSource, what: string, check: FsckCheck, judge: Judge): Promise<Finding[]> {
  const findings: Finding[] = []
  for (let from: string | undefined = '0'; from !== undefined; ) {
    const at: string = from
    const [{ highest, next, rows }, lasts] = await source.read(async (redis, namespace) => {
      const seen = await runScript(redis, fsckScript, {
        ...{ keys: routeKeys(namespace.name), most: piecesPerStep },
        ...{ what, from: at },
      })
      // After the cursors: the log only grows.
      return [seen, await readLasts(redis, namespace)] as const
    })
    for (const row of rows) {
      const found = judge(row, { highest, lasts })
      if (found) findings.push({ check, where: found[0], problem: found[1] })
    }
    from = next === '' ? undefined : next
  }
  return findings
}

const subscription = (name: string | undefined): string => `subscription ${shown(name)}`

function judgeSubscription(row: readonly string[], { highest }: { highest: number }): Found | undefined {
  const [name, text, change] = row as readonly [string, string, string]
  const where = subscription(name)
  let read: ReturnType<typeof readSubscription>
  try {
    read = readSubscription(name, text)
  } catch {
    return [where, 'its definition cannot be read']
  }
  const { revision, born } = read
  if (born > revision) return [where, `it was created with revision ${born}, above its own ${revision}`]
  if (revision > highest) return [where, `its revision ${revision} is above the highest given out, ${highest}`]
  if (change === '') return [where, 'no change of it is known: routers never hear of it']
  if (Number(change) !== revision) return [where, `its revision is ${revision}, but its last change is ${change}`]
}

function judgeChange(row: readonly string[], { highest }: { highest: number }): Found | undefined {
  const [name, change, revision] = row as readonly [string, string, string]
  if (Number(change) > highest)
    return [subscription(name), `its last change ${change} is above the highest revision given out, ${highest}`]
  // With a subscription of another revision: reported with it.
  if (revision !== '' && Number(revision) < Number(change))
    return [subscription(name), `its last change is ${change}, but its revision is ${revision}`]
}

function judgeOwn(row: readonly string[], { lasts }: { lasts: readonly number[] }): Found | undefined {
  const [field, text, revision] = row as readonly [string, string, string]
  const [, partition, name] = /^(\d+) ([\s\S]+)$/.exec(field) ?? []
  const where = `own cursor ${shown(field)}`
  if (name === undefined) return [where, 'it names no partition and subscription']
  const [seq, its] = text.split(' ')
  if (revision === '') return [where, 'there is no such subscription']
  if (its !== revision) return [where, `it was read for revision ${its}, the subscription has ${revision}`]
  return placeProblem(where, Number(partition), seq!, lasts)
}

function judgeMain(row: readonly string[], { lasts }: { lasts: readonly number[] }): Found | undefined {
  const [partition, seq] = row as readonly [string, string]
  return placeProblem(`main cursor of partition ${partition}`, wholeNumber(partition), seq, lasts)
}

function placeProblem(where: string, partition: number, text: string, lasts: readonly number[]): Found | undefined {
  const last = lasts[partition]
  const seq = wholeNumber(text)
  if (last === undefined) return [where, 'there is no such partition']
  if (Number.isNaN(seq)) return [where, 'it is not a seq']
  if (seq > last) return [where, `it is at ${seq}, above the partition's last ${last}`]
}
