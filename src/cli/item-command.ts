/**
 * A command that is run for each item of a queue: the item as JSON on its stdin, exit code 0 for done.
 *
 *   running   its output goes where this process's goes
 *   asked     its signal fired: its process group got SIGTERM, and gets SIGKILL if that was not enough
 *   gone      whatever is left of it when the worker ends is killed: its item is someone else's by then
 *
 * One that cannot be started at all is no item's fault: nothing is tried again, and the worker ends.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, resolve as pathOf } from 'node:path'
import { BusbarError, shown } from '../errors.ts'
import type { Event, WorkContext } from '../index.ts'
import type { Io } from './output.ts'

const patienceMs = 2_000
const unstartable: readonly string[] = ['ENOENT', 'EACCES', 'ENOEXEC', 'ENOTDIR']

export class ItemCommand {
  readonly #words: readonly string[]
  readonly #io: Pick<Io, 'env' | 'cwd'>
  readonly #running = new Set<ChildProcess>()
  #fail: (error: BusbarError) => void = () => undefined
  /** Rejects when the command cannot be started. */
  readonly failed: Promise<never>

  constructor(words: readonly string[], io: Pick<Io, 'env' | 'cwd'>) {
    this.#words = words
    this.#io = io
    // Also when someone is impatient.
    process.once('exit', this.#killAll)
    this.failed = new Promise((_, reject) => {
      this.#fail = reject
    })
    this.failed.catch(() => undefined)
  }

  /** Resolves when it has ended well; rejects, and the item is tried again, when it has not. */
  run(event: Event, context: WorkContext): Promise<void> {
    const [file = '', ...args] = this.#words
    const { env, cwd } = this.#io
    return new Promise((resolve, reject) => {
      // In a group of its own: Ctrl-C is this process's to hear, and what the command has started ends with it.
      const child = spawn(file, args, { env, cwd, stdio: ['pipe', 'inherit', 'inherit'], detached: true })
      this.#running.add(child)
      const stop = () => this.#stop(child)
      context.signal.addEventListener('abort', stop, { once: true })
      child.once('error', (error: NodeJS.ErrnoException) => {
        this.#running.delete(child)
        if (unstartable.includes(error.code ?? '')) this.#fail(cannotStart(file, error))
        else reject(error)
      })
      child.once('exit', (code, signal) => {
        this.#running.delete(child)
        context.signal.removeEventListener('abort', stop)
        if (code === 0) resolve()
        else reject(new Error(`the command ended ${signal ? `by ${signal}` : `with exit code ${code}`}`))
      })
      // One that does not read its item need not.
      child.stdin.on('error', () => undefined)
      child.stdin.end(`${itemJson(event, context)}\n`)
    })
  }

  /** Nothing of it goes on. */
  end(): void {
    process.off('exit', this.#killAll)
    this.#killAll()
  }

  readonly #killAll = (): void => {
    for (const child of this.#running) kill(child, 'SIGKILL')
  }

  #stop(child: ChildProcess): void {
    kill(child, 'SIGTERM')
    setTimeout(() => {
      if (this.#running.has(child)) kill(child, 'SIGKILL')
    }, patienceMs).unref()
  }
}

// What a system looks through where there is no PATH.
const plainPath = '/usr/bin:/bin'

/** PARAMETER_INVALID for a command that is not there: that is known before there is an item for it. */
export function checkStartable([file = '']: readonly string[], { env, cwd }: Pick<Io, 'env' | 'cwd'>): void {
  const folders = file.includes('/') ? [''] : (env.PATH ?? plainPath).split(delimiter)
  const problems = folders.map((folder) => problemWith(pathOf(cwd, folder, file)))
  if (problems.includes(undefined)) return
  throw cannotStart(file, problems.find((error) => error?.code !== 'ENOENT') ?? problems[0]!)
}

/** Undefined when it can be run. */
function problemWith(path: string): NodeJS.ErrnoException | undefined {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile() ? undefined : Object.assign(new Error(`${path} is no file`), { code: 'EACCES' })
  } catch (error) {
    return error as NodeJS.ErrnoException
  }
}

/** As the HTTP door writes a claimed item, and which queue it is of. */
function itemJson(event: Event, { queue, attempt, enqueuedAt, firstClaimedAt }: WorkContext): string {
  const head = JSON.stringify({ queue, id: event.id, attempt, enqueuedAt, firstClaimedAt })
  return `${head.slice(0, -1)},"event":${event.toText()}}`
}

function kill({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, signal)
  } catch {
    // It has ended by itself.
  }
}

const cannotStart = (file: string, error: NodeJS.ErrnoException): BusbarError =>
  BusbarError.of(
    'PARAMETER_INVALID',
    { name: 'command', value: shown(file), problem: `cannot be started (${error.code})` },
    error,
  )
