/**
 * Real child processes, for tests in which a process dies, hangs or is too late.
 *
 * The scripts lie in children/ and import the built package; where they can fail is named there, with failpoints.mjs.
 * Every child ends with the test file that started it, or with this process if that is killed.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { afterAll } from 'vitest'
import { eventually } from './eventually.ts'
import { guard } from './guard.ts'

export interface SpawnOptions {
  args?: readonly string[]
  /** Added to this process's environment. */
  env?: Readonly<Record<string, string>>
}

export interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

export interface Child {
  readonly pid: number
  /** What it has printed so far, line by line. */
  readonly stdout: readonly string[]
  readonly stderr: readonly string[]
  readonly exited: Promise<Exit>
  /** The next line that is, or matches, `wanted`: asked again for the same, the one after it. Rejects if the child exits first. */
  waitForLine(wanted: string | RegExp, options?: { timeoutMs?: number }): Promise<string>
  /** Waits until the child has ended (or, with FAILPOINT_SIGNAL=SIGSTOP, stopped) itself there. */
  hitFailpoint(name: string): Promise<void>
  /** Writes a line to its stdin. */
  send(line: string): void
  /** SIGKILL unless told otherwise. */
  kill(signal?: NodeJS.Signals): void
}

type Spawned = ChildProcessByStdio<Writable, Readable, Readable>

const alive = new Set<Child>()

afterAll(async () => {
  const ending = [...alive]
  for (const child of ending) child.kill()
  await Promise.all(ending.map((child) => child.exited))
})

/** `script` is a file in children/, or the URL of any other. */
export function spawnNode(script: string | URL, { args = [], env = {} }: SpawnOptions = {}): Child {
  const path = fileURLToPath(typeof script === 'string' ? new URL(`./children/${script}`, import.meta.url) : script)
  const spawned = spawn(process.execPath, [path, ...args], {
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  const child = handle(spawned, env.FAILPOINT_SIGNAL === 'SIGSTOP')
  const release = guard(child.pid)
  alive.add(child)
  child.exited.finally(() => {
    alive.delete(child)
    release()
  })
  return child
}

function handle(spawned: Spawned, stopsAtFailpoint: boolean): Child {
  const stdout = collectLines(spawned.stdout)
  const stderr = collectLines(spawned.stderr)
  const exited = exitOf(spawned)
  const searchedUpTo = new Map<string, number>()
  let exit: Exit | undefined
  exited.then((seen) => {
    exit = seen
  })
  // A child that is gone cannot be written to; the test sees that by its exit.
  spawned.stdin.on('error', () => {})

  function nextLine(wanted: string | RegExp): string | null {
    const from = searchedUpTo.get(String(wanted)) ?? 0
    const found = stdout.findIndex((line, at) => at >= from && matches(line, wanted))
    if (found === -1) return null
    searchedUpTo.set(String(wanted), found + 1)
    return stdout[found]!
  }

  async function waitForLine(wanted: string | RegExp, { timeoutMs = 10_000 } = {}): Promise<string> {
    const what = `The child's line ${wanted}`
    const found = await eventually(() => nextLine(wanted) ?? exit ?? false, { timeoutMs, everyMs: 5, what })
    if (typeof found === 'string') return found
    throw new Error(
      `${what} did not come; it exited with ${JSON.stringify(found)}.\n${[...stdout, ...stderr].join('\n')}`,
    )
  }

  return {
    pid: spawned.pid!,
    stdout,
    stderr,
    exited,
    waitForLine,
    async hitFailpoint(name) {
      await waitForLine(`failpoint ${name}`)
      if (stopsAtFailpoint) await stopped(spawned.pid!)
      else await exited
    },
    send: (line) => void spawned.stdin.write(`${line}\n`),
    kill: (signal = 'SIGKILL') => void spawned.kill(signal),
  }
}

const matches = (line: string, wanted: string | RegExp) =>
  typeof wanted === 'string' ? line === wanted : wanted.test(line)

function collectLines(stream: Readable): string[] {
  const lines: string[] = []
  createInterface({ input: stream }).on('line', (line) => lines.push(line))
  return lines
}

// 'close', not 'exit': by then everything that it printed has been read.
function exitOf(spawned: Spawned): Promise<Exit> {
  return new Promise((resolve, reject) => {
    spawned.once('close', (code, signal) => resolve({ code, signal }))
    spawned.once('error', reject)
  })
}

// It has announced the signal before sending it; only the system knows when it stands still.
async function stopped(pid: number): Promise<void> {
  if (process.platform !== 'linux') return
  const state = async () => /\) (\w)/.exec(await readFile(`/proc/${pid}/stat`, 'utf8'))?.[1]
  await eventually(async () => (await state()) === 'T', { everyMs: 2, what: 'The stopped child' })
}
